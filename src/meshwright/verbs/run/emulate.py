"""Emulate a plan: run the interpreter on local processes at modelled times, and compare with the simulator.

The simulator and the emulated run are given the same durations (``modelled_times.py``). What differs is who executes: a
player of lists in one process, or the interpreter that also trains, with its order of messages, on real processes.
Where islands exchange between steps, a round is emulated, and the mean step compared (``emulated_round.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.plan_report import report
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.resolve import Resolved
from meshwright.program.program import Program
from meshwright.result import Report
from meshwright.runtime.emulation.emulation_result import EmulatedSteps, Emulation
from meshwright.runtime.emulation.local_program import check_processes, local_program, stands_for
from meshwright.runtime.emulation.modelled_durations import ModelledTimes
from meshwright.simulate.chrome_trace import perfetto_trace
from meshwright.simulate.memory_ledger import peak_activation_bytes
from meshwright.simulate.plan_estimate import estimate, lower_and_simulate
from meshwright.simulate.round_estimate import PlannedRound, with_exchanges
from meshwright.simulate.simulation_result import Record, Simulation
from meshwright.verbs.predict.predict_plan import check_playable, doubts
from meshwright.verbs.run.emulated_round import emulated_round, emulated_steps
from meshwright.verbs.run.modelled_times import modelled_times

if TYPE_CHECKING:
    from meshwright.verbs.measure import Progress

LIMIT_S = 600.0
"""Seconds that an emulation may take unless more are allowed."""
EXPOSED = (
    "emulated: exposed time is that of the emulated round; bytes and seconds of an exchange are predicted"
)
EXPOSED_AT_BASE = f"{EXPOSED}; the period of a rule is its base"


@dataclass(frozen=True)
class Emulated:
    """An emulated step: its Report, how it was emulated and what the simulator says, and the step itself.

    ``simulated`` is the simulator's step of the whole Program, its length the mean one where islands exchange between
    steps.
    """

    report: Report
    program: Program
    local: Program
    simulated: Simulation
    emulation: Emulation

    @property
    def difference(self) -> float:
        """Emulated over simulated makespan, minus 1."""
        return self.emulation.step_s / self.simulated.step_s - 1

    def to_json(self) -> dict[str, Any]:
        """Return a Report's form, with an entry ``emulation``."""
        return self.report.to_json() | {"emulation": emulation_data(self)}

    def trace(self) -> dict[str, object]:
        """Return the emulated step in the form of a simulated step's trace."""
        return perfetto_trace(self.program, as_simulation(self.emulation, self.program), "emulated")


def emulated(
    resolved: Resolved,
    ranks: int | None = None,
    limit_s: float = LIMIT_S,
    progress: "Progress | None" = None,
) -> Emulated:
    """Emulate a legal plan on ``ranks`` local processes, by default one for each pipeline rank.

    Raises InputError where the plan can not be emulated, RunError where a rank waits in vain.
    """
    check_playable(resolved)
    run, scale_of = _runtime()
    program, simulation = lower_and_simulate(resolved.long, resolved.setting)
    processes = program.pipeline_ranks if ranks is None else ranks
    _check_question(program, processes, limit_s)
    local, prices = local_program(program, processes), program_prices(program, resolved.setting)
    times, planned = modelled_times(program, prices), PlannedRound(program, prices, None)
    step_s, played = simulation.step_s + max(times.codec_s), None
    if planned.times:
        played = planned.played(step_s)
        step_s = played.step_s
    if step_s > simulation.step_s:
        simulation = replace(simulation, period_s=step_s)
    steps = emulated_steps(program, played)
    _check_length(scale_of(local, times) * step_s * steps.total, steps, limit_s, resolved)
    emulation = run(local, times, step_s, steps=steps, report=progress or _silent)
    return Emulated(_report(resolved, planned, times, emulation), program, local, simulation, emulation)


def _runtime() -> tuple[Callable[..., Emulation], Callable[..., float]]:
    try:
        from meshwright.runtime.emulation.emulate import emulate, scale_here
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("emulate", missing.name, rule, "pip install 'meshwright[run]'")) from missing
    return emulate, scale_here


def _silent(what: str, part: float) -> None:
    """No progress is shown."""


def _check_question(program: Program, processes: int, limit_s: float) -> None:
    """Raise InputError with all that is wrong with what was asked of an emulation."""
    problems: list[Problem] = []
    attempted(lambda: check_processes(program, processes), problems)
    if not 0 < limit_s < float("inf"):
        problems.append(
            Problem("limit", limit_s, "must be a number of seconds above 0", f"--limit {LIMIT_S:.0f}")
        )
    if problems:
        raise InputError(problems)


def _check_length(wall_s: float, steps: EmulatedSteps, limit_s: float, resolved: Resolved) -> None:
    if wall_s > limit_s:
        batch = resolved.setting.workload.global_batch
        what = "the step" if steps.total == 1 else f"{steps.total} steps"
        rule = f"emulating {what} takes {wall_s:.1f} s of the wall, more than the limit of {limit_s:g} s"
        fewer = max(1, int(batch * limit_s / wall_s))
        less = f", or a global_batch of about {fewer}" if fewer < batch else ""
        raise InputError(Problem("limit", limit_s, rule, f"--limit {wall_s + 1:.0f}{less}"))


def _report(resolved: Resolved, planned: PlannedRound, times: ModelledTimes, emulation: Emulation) -> Report:
    """Return the Report of the emulated step: its own times, the ledger's memory, and derived figures."""
    plan, setting, program = resolved.long, resolved.setting, planned.program
    played = emulated_round(emulation) if planned.times else None
    kept_s = max(times.codec_s) + (0.0 if played is None else played.kept_s / played.steps)
    step = as_simulation(emulation, program)
    estimated = estimate(plan, setting, program, replace(step, period_s=emulation.step_s - kept_s))
    if plan.synchronise:
        estimated = with_exchanges(estimated, planned, max(times.codec_s), played)
    found = report(plan, estimated, setting)
    origin = found.origin | {
        "step_time_s": f"emulated: {_steps_in_words(emulation.steps)} on local processes at modelled "
        f"times, {emulation.scale:.3g} s of the wall per modelled second; nothing was measured",
        "step_time_low_s": "null: a prediction's interval is `predict`'s",
        "step_time_high_s": "null: a prediction's interval is `predict`'s",
    }
    if played is not None:
        origin["synchronise"] = EXPOSED_AT_BASE if planned.ruled else EXPOSED
    return replace(
        found,
        kind="emulated",
        step_time_low_s=None,
        step_time_high_s=None,
        origin=origin,
        remarks=doubts(resolved),
    )


def _steps_in_words(steps: EmulatedSteps) -> str:
    if steps.timed == 1:
        return "the interpreter's step"
    return f"a mean of {steps.timed} steps" + (f" behind {steps.before}" if steps.before else "")


def as_simulation(emulation: Emulation, program: Program) -> Simulation:
    """Return the last emulated step in the simulator's form: the last process of each pipeline rank.

    Of several steps it is as long as the mean.
    """
    ranks, several = (
        [_last(emulation, rank) for rank in range(program.pipeline_ranks)],
        emulation.steps.total > 1,
    )
    first = min(one.start for actions in ranks for one in actions) if several else 0.0
    return Simulation(
        tuple(
            tuple(Record(one.action, one.start - first, one.end - first, one.stream) for one in actions)
            for actions in ranks
        ),
        emulation.step_s if several else None,
    )


def _last(emulation: Emulation, pipeline_rank: int) -> Any:
    of_class = (rank for rank in emulation.ranks if rank.pipeline_rank == pipeline_rank)
    return max(of_class, key=lambda rank: rank.end_s).actions


def emulation_data(found: Emulated) -> dict[str, Any]:
    """Return how a step was emulated and how it compares, JSON-ready: fractions, seconds, bytes."""
    emulation = found.emulation
    return {
        "simulated_step_time_s": found.simulated.step_s,
        "difference": found.difference,
        "bubble": bubble(as_simulation(emulation, found.program)),
        "simulated_bubble": bubble(found.simulated),
        "processes": found.local.parts.ranks,
        "stands_for": stands_for(found.program, found.local),
        "steps": emulation.steps.timed,
        "steps_before": emulation.steps.before,
        **_clock_data(emulation),
        "earlier": [_clock_data(one) | {"step_time_s": one.step_s} for one in emulation.earlier],
        "ranks": [_rank_data(found, rank) for rank in range(found.program.pipeline_ranks)],
    }


def bubble(simulation: Simulation) -> float:
    """Return the mean fraction of the step in which pipeline ranks are in no forward or backward pass."""
    busy = [simulation.busy_s(rank) for rank in range(len(simulation.ranks))]
    return 1 - sum(busy) / len(busy) / simulation.step_s


def _clock_data(emulation: Emulation) -> dict[str, Any]:
    return {
        "scale": emulation.scale,
        "wall_s": emulation.wall_s,
        "starts": emulation.starts,
        "late_starts": emulation.late,
        "scheduling": "SCHED_RR" if emulation.real_time else "as other processes",
        "load_average": emulation.load_average,
    }


def _rank_data(found: Emulated, rank: int) -> dict[str, Any]:
    of_class = [one for one in found.emulation.ranks if one.pipeline_rank == rank]
    busy = max(one.busy_s for one in of_class)
    return {
        "rank": rank,
        "processes": len(of_class),
        "busy_s": busy,
        "idle_s": found.emulation.step_s - busy,
        "simulated_busy_s": found.simulated.busy_s(rank),
        "late_starts": sum(one.late for one in of_class),
        "peak_activation_bytes": max(one.peak_bytes for one in of_class),
        "ledger_activation_bytes": peak_activation_bytes(found.program, rank),
    }
