"""Plans whose islands exchange between steps: cases, a round in closed form, and rows of the page of emulation.

In closed form a round is that of one island's steps, which closed forms price too, plus what every exchange adds where
nothing else is on its way.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from emulation_cases import SLOW_LINKS, Case, resolved

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.plan_report import closed_form
from meshwright.cost.synchronisation.round_time import EntryTimes, uniform_round_seconds
from meshwright.plans.resolve import Resolved
from meshwright.program.program import Program
from meshwright.runtime.emulation.emulation_result import Emulation
from meshwright.simulate.round_estimate import PlannedRound
from meshwright.verbs.run.emulate import emulated

NESTEROV = {"nesterov": {"lr": 0.7, "momentum": 0.9}}
MOMENTUM = {"momentum": {"lr": 1.0, "momentum": 0.2, "clip": 1.0, "staleness": True}}
STREAMING = {"every": 20, "fragments": 5, "merge": 0.5, "outer": NESTEROV}
SEQUENTIAL = {"count": 2, "pattern": "sequential"}


def _exchanging(
    *entries: Mapping[str, object],
    layout: Mapping[str, int] = {"dp_replicate": 4},
    batch: int = 16,
    processes: int = 2,
    **choices: Any,
) -> Case:
    """Return a case of a small model, with two processes for the islands of each pipeline rank."""
    said = tuple({"state": "parameter", "over": "dp_replicate", **entry} for entry in entries)
    usual = {"model": "llama-3.2-1b", "recompute": "none", "cluster": SLOW_LINKS}
    return Case(
        layout=dict(layout), batch=batch, processes=processes, synchronise=said, **{**usual, **choices}
    )


ROUNDS = (
    _exchanging({"every": 10, "outer": NESTEROV}),
    _exchanging({**STREAMING, "delay": 3, "compress": {"quantise": "e3m0"}}),
    _exchanging({**STREAMING, "delay": 1}),
    _exchanging({**STREAMING, "every": 10, "delay": 4}),
    _exchanging(
        {"every": 4},
        {"state": "first_moment", "every": 8},
        {"state": "second_moment", "every": 16},
    ),
    _exchanging({"every": 4, "delay": 4, "outer": MOMENTUM}),
    _exchanging({"every": 12, "delay": 12, "outer": MOMENTUM}),
    _exchanging({"every": 5, "compress": {"quantise": "int8"}, "outer": NESTEROV}),
    _exchanging(
        {"every": 6, "fragments": 3, "delay": 1, "outer": NESTEROV},
        layout={"pp": 2, "dp_replicate": 2},
        processes=4,
    ),
    _exchanging(
        {"every": 2, "fragments": SEQUENTIAL, "outer": NESTEROV},
        layout={"pp": 4, "dp_replicate": 2},
        processes=8,
        cluster=None,
    ),
    _exchanging(
        {"every": 4, "outer": NESTEROV},
        layout={"pp": 2, "dp_replicate": 2, "dp_shard": 2, "ep": 2},
        sharding="zero1",
        model="qwen3-30b-a3b",
        processes=4,
        cluster=None,
    ),
)
"""DiLoCo, Streaming DiLoCo without and with two fragments on their way, DES-LOC, CO2, encoded values, pipelines."""


def round_row(case: Case, described: Callable[[Program, Emulation], dict[str, Any]]) -> dict[str, Any]:
    """Return a case, emulated; seconds are those of a mean step, ``described`` says how it was emulated."""
    plan = resolved(case)
    found = emulated(plan, ranks=case.processes)
    return {
        "closed_form_s": closed_form_s(plan, found.program),
        "simulated_s": found.simulated.step_s,
        "emulated_s": found.emulation.step_s,
        "steps": found.emulation.steps.timed,
        "before": found.emulation.steps.before,
        **described(found.program, found.emulation),
    }


def closed_form_s(plan: Resolved, program: Program) -> float:
    """Return the mean step in closed form: exact where no exchange waits for another one."""
    planned = PlannedRound(program, program_prices(program, plan.setting), None)
    step_s = island_step_s(plan)
    return step_s + sum(_added_s(step_s, times) for times in planned.times)


def island_step_s(plan: Resolved) -> float:
    """Return a step of one island in closed form: the plan without its axis of replicas, on its part of the batch."""
    assert plan.short is not None
    replicas, workload = plan.short.layout.dp_replicate, plan.setting.workload
    batch = workload.global_batch // replicas
    island = plan.short.model_copy(
        update={
            "synchronise": (),
            "layout": plan.short.layout.model_copy(update={"dp_replicate": 1}),
            "workload": plan.short.workload.model_copy(update={"global_batch": batch}),
        }
    )
    setting = replace(plan.setting, workload=replace(workload, global_batch=batch))
    return sum(closed_form(island, setting, plan.long.pipeline.stages).parts.values())


def _added_s(step_s: float, times: EntryTimes) -> float:
    """Return the seconds that an entry adds to a mean step; each fragment has a turn of its own."""
    entry, count = times.periods.entry, times.periods.count
    turn = entry.period // count
    round_s = sum(
        uniform_round_seconds(
            step_s, turn, 1, int(entry.delay), times.exchange_s[fragment], times.compute_s(fragment)
        )
        for fragment in range(count)
    )
    return round_s / entry.period - step_s


def round_line(case: Case, found: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    steps = f"{found['before']} + {found['steps']}" if found["before"] else str(found["steps"])
    return (
        f"| {case.name} | {found['processes']} for {found['ranks']} | {steps} | {found['closed_form_s']:.4f} | "
        f"{found['simulated_s']:.4f} | {found['emulated_s']:.4f} | "
        f"{found['closed_form_s'] / found['simulated_s'] - 1:+.2%} | "
        f"{found['emulated_s'] / found['simulated_s'] - 1:+.2%} | {found['late']:.1%} | "
        f"{'yes' if found['peaks_equal'] else '**no**'} |"
    )
