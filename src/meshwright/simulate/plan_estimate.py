"""Estimate one plan by lowering and playing it: for plans without a short form, and for traces."""

from collections import Counter
from dataclasses import replace

from meshwright.cost.closed_form.step_parts import PARTS
from meshwright.cost.operators.pass_prices import Prices, total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.operators.program_passes import (
    pass_parts,
    program_message_seconds,
    slowest_message_seconds,
)
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD
from meshwright.cost.plan_report import Estimate
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.checks.per_unit_exchanges import UNIT_KINDS
from meshwright.program.checks.validate_program import validate
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.schedules.action import PASS_KINDS, Action
from meshwright.schedules.activation_offload import COPIES
from meshwright.schedules.stage_times import ShareTimes, StageTimes, rounded_times
from meshwright.simulate.chunked_states import placed, with_copies
from meshwright.simulate.memory_ledger import peak_host_bytes, rank_ledger
from meshwright.simulate.round_estimate import with_rounds
from meshwright.simulate.simulation_result import Simulation
from meshwright.simulate.simulator import simulate


def lowered(plan: LongPlan, setting: Setting) -> Program:
    """Lower a plan, an automatic schedule with the times of its stages."""
    nouns = setting.model, setting.cluster, setting.workload, setting.stack
    program = lower(plan, *nouns)
    if plan.choice.automatic:
        program = lower(plan, *nouns, stage_times(program, program_prices(program, setting)))
    return program


def lower_and_simulate(plan: LongPlan, setting: Setting) -> tuple[Program, Simulation]:
    """Lower a plan, hold the Program against its laws and play it."""
    program = lowered(plan, setting)
    problems = validate(program, setting.model)
    assert not problems, "a legal plan was lowered to a Program that breaks a law: " + str(problems[0])
    return program, simulate(program, program_prices(program, setting))


def stage_times(program: Program, prices: Prices) -> StageTimes:
    """Return the stage times that an automatic schedule uses, from a Program's priced bodies."""
    seconds = {key: float(total(parts)) for key, parts in pass_parts(program, prices).items()}
    split = program.split
    forward, input_ = (
        [seconds[s.index, kind] for s in program.stages] for kind in ("F", "I" if split else "B")
    )
    weight = [seconds[s.index, "W"] if split else 0.0 for s in program.stages]
    message = slowest_message_seconds(program, prices)
    stages = len(program.stages)
    kept = sum(program.weight_gradient_bytes[:stages]) / max(1, sum(program.activation_bytes[:stages]))
    share = ShareTimes(seconds[stages, "S"], seconds[stages, "T"]) if program.shares else None
    return rounded_times(forward, input_, weight, message, kept, share)


def simulated_estimate(plan: LongPlan, setting: Setting) -> Estimate:
    """Estimate any legal plan; categories inside passes are those of the busiest pipeline rank."""
    if plan.in_chunks:
        return _chunked_estimate(plan, setting)
    found = estimate(plan, setting, *(played := lower_and_simulate(plan, setting)))
    return with_rounds(found, played[0], setting) if plan.synchronise else found


def _chunked_estimate(plan: LongPlan, setting: Setting) -> Estimate:
    """Estimate a plan with states in chunks: lowered without them, placed, and played with their copies."""
    program, simulation = lower_and_simulate(plan.model_copy(update={"offload": None}), setting)
    placement = placed(program, plan, setting)
    moving = with_copies(program, placement)
    if moving is not program:
        simulation = simulate(moving, program_prices(moving, setting))
    parts = _parts(moving, simulation, setting)
    method = f"simulation of the lowered Program, with chunks of {placement.layout.mib:.0f} MiB"
    return Estimate(parts, (placement.ledger,), method, (placement.host_bytes,))


def estimate(plan: LongPlan, setting: Setting, program: Program, simulation: Simulation) -> Estimate:
    """Return the times of a simulated step, and its memory ledger."""
    ranks = range(program.pipeline_ranks)
    ledgers = tuple(rank_ledger(program, r, setting.cluster) for r in ranks)
    host = tuple(peak_host_bytes(program, r) for r in ranks)
    return Estimate(_parts(program, simulation, setting), ledgers, "simulation of the lowered Program", host)


def _parts(program: Program, simulation: Simulation, setting: Setting) -> dict[str, float]:
    prices = program_prices(program, setting)
    step_s, simulation = simulation.step_s, _without_unit_exchanges(program, simulation, prices)
    simulation, waiting = _without_copies(program, simulation, prices)
    busiest = max(range(program.pipeline_ranks), key=simulation.busy_s)
    parts, passes = dict.fromkeys(PARTS, 0.0), pass_parts(program, prices)
    if program.state_copies:
        parts[OFFLOAD] = 0.0
    paused = 0.0
    schedule_end, begin = 0.0, simulation.ranks[busiest][0].start if program.steps_overlap else 0.0
    for record in simulation.ranks[busiest]:
        action = record.action
        if action.kind in PASS_KINDS:
            assert action.stage is not None
            for name, value in passes[action.stage, action.kind].items():
                parts[name] += float(value)
            schedule_end = record.end - begin - paused
        elif action.kind == "PERTURB":
            paused += record.end - record.start
        elif action.kind == "STEP":
            parts["optimizer"] += record.end - record.start
    sends = Counter(
        (r.action.kind, r.action.stage)
        for r in simulation.ranks[busiest]
        if r.action.kind in ("SEND_F", "SEND_B")
    )
    sending = sum(n * program_message_seconds(program, prices, Action(*of, 0)) for of, n in sends.items())
    idle = max(0.0, schedule_end - sum(parts.values()) + parts["optimizer"])
    exchanged = sum(r.end - r.start for r in simulation.ranks[busiest] if r.stream == "exchange")
    parts["pp"] = min(idle, sending + exchanged)
    parts["bubble"] = idle - parts["pp"]
    parts["optimizer"] += paused
    parts["dp"] += step_s - sum(parts.values()) - sum(waiting.values())
    return parts | {name: parts.get(name, 0.0) + seconds for name, seconds in waiting.items()}


def _without_copies(
    program: Program, simulation: Simulation, prices: Prices
) -> tuple[Simulation, dict[str, float]]:
    """Return the step without offload copies, and the seconds that these add by part."""
    if not any(program.offloaded_bytes):
        return simulation, {}
    kinds = (*COPIES, *(UNIT_KINDS if program.parts.by_unit else ()))
    lists = tuple(tuple(a for a in actions if a.kind not in kinds) for actions in program.lists)
    without = simulate(replace(program, lists=lists), prices)
    return without, {OFFLOAD: max(0.0, simulation.step_s - without.step_s)}


def _without_unit_exchanges(program: Program, simulation: Simulation, prices: Prices) -> Simulation:
    """Return the step without the exchanges of units; the difference in time is their cost."""
    if not program.parts.by_unit:
        return simulation
    lists = tuple(tuple(a for a in actions if a.kind not in UNIT_KINDS) for actions in program.lists)
    return simulate(replace(program, lists=lists), prices)
