"""Count false alarms in healthy steps, and measure what watching a run costs.

The cost is measured in one run: steps with and without telemetry take turns, so that the load of the host is the same
for both. Seconds of the processor, which other processes change little, are measured as well. Comparisons of all ranks
come on top, spread over the steps between two of them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

from injected_faults import PLANS
from kept_parts import kept
from training_runs import small_run

from meshwright.runtime.faults.rank_health import RankHealth
from meshwright.runtime.faults.step_series import StepSeconds
from meshwright.runtime.training.loop import Loop
from meshwright.runtime.training.options import TrainingOptions

HEALTHY, AT_ONCE = 10_000, 2_000
"""Healthy steps, and those of a run."""
MEASURED, WARM_UP, COMPARED = 200, 6, 10
"""Steps of the run that is measured, how many are left out at its begin, and the steps between comparisons."""
MOST_OF_STEP = 0.01
SIZES = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "vocab_size": 1024}
SEQ_LEN = 128
TIMES = "step-seconds.json"


def alarms(plan: str, steps: int = AT_ONCE) -> list[str]:
    """Return the faults that a healthy run names."""
    with TemporaryDirectory() as folder:
        run = small_run(Path(folder), **PLANS[plan])
        outcome = run.train("run", steps, "fp32", warmup_steps=20, lr=1e-3).outcome
    return [str(fault) for fault in outcome.faults]


def telemetry_cost(plan: str = "2 replicas") -> dict[str, float]:
    """Return medians of seconds of a step with and without telemetry, and those of a comparison."""
    with TemporaryDirectory() as folder, _taking_turns():
        run = small_run(Path(folder), **PLANS[plan], workload={"seq_len": SEQ_LEN, "global_batch": 8})
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        (Path(folder) / "config.json").write_text(json.dumps(config | SIZES), encoding="utf-8")
        run.train("run", MEASURED, "fp32", hash_every=COMPARED)
        times = json.loads((Path(folder) / "run" / TIMES).read_text(encoding="utf-8"))
    found = {}
    for place, kind in enumerate(("", "_cpu")):
        steps, comparisons = ([of[place] for of in times[name]] for name in ("steps", "comparisons"))
        found[f"with{kind}_s"] = median(steps[WARM_UP::2])
        found[f"without{kind}_s"] = median(steps[WARM_UP + 1 :: 2])
        found[f"comparison{kind}_s"] = median(comparisons)
    return found


def share_of_step(cost: dict[str, float], kind: str = "") -> float:
    """Return the part of a step that telemetry takes, with comparisons at their usual interval."""
    without_s = cost[f"without{kind}_s"]
    compared_s = cost[f"comparison{kind}_s"] / TrainingOptions(steps=1).hash_every
    return (cost[f"with{kind}_s"] + compared_s) / without_s - 1


def _watches(step: int) -> bool:
    """Return whether a step has telemetry."""
    return step % 2 == 0


def _clocks() -> tuple[float, float]:
    return perf_counter(), process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    now = _clocks()
    return now[0] - began[0], now[1] - began[1]


@contextmanager
def _taking_turns() -> Iterator[None]:
    """Switch the telemetry of ranks that are forked inside the block on and off, and record seconds on rank 0."""
    steps: list[tuple[float, float]] = []
    comparisons: list[tuple[float, float]] = []
    take, compare = Loop._step, RankHealth.compare

    def step(loop: Loop, number: int) -> None:
        _switch(loop, on=_watches(number))
        began = _clocks()
        take(loop, number)
        steps.append(_since(began))

    def compared(health: RankHealth, number: int) -> None:
        began = _clocks()
        compare(health, number)
        comparisons.append(_since(began))
        if health.rank.place.rank == 0:
            text = json.dumps({"steps": steps, "comparisons": comparisons})
            (health.options.output / TIMES).write_text(text, encoding="utf-8")

    with patch.object(Loop, "_step", step), patch.object(RankHealth, "compare", compared):
        yield


def _switch(loop: Loop, *, on: bool) -> None:
    """Switch the telemetry of a rank on or off: what it hooks into stays, but does nothing."""
    health, history = loop.health, loop.rank.communicator.history
    off: dict[Any, dict[str, Any]] = {
        id(health): {
            "end_step": lambda step, seconds: StepSeconds(seconds, 0.0),
            "begin_step": lambda step: None,
        },
        id(history): {"begin": lambda *of, **options: None},
    }
    for owner in (health, history):
        for name, nothing in off[id(owner)].items():
            owner.__dict__.pop(name, None)
            if not on:
                owner.__dict__[name] = nothing
    for unit in loop.rank.plan.trained_units:
        unit.__dict__["inspect"] = health._inspect if on else lambda unit, parts: None


def watching() -> tuple[str, bool]:
    """Return the section, and whether there is no false alarm and telemetry is cheap."""
    names, found = list(PLANS), []
    for number in range(HEALTHY // AT_ONCE):
        plan = names[number % len(names)]
        found += kept(f"healthy steps {number}", lambda plan=plan: alarms(plan))
    cost = kept("telemetry", telemetry_cost)
    share, cpu = share_of_step(cost), share_of_step(cost, "_cpu")
    rows = [
        f"| {name} | {cost[f'{key}_s'] * 1e3:.2f} ms | {cost[f'{key}_cpu_s'] * 1e3:.2f} ms |"
        for name, key in (
            ("step without telemetry", "without"),
            ("step with telemetry", "with"),
            (f"comparison of all ranks, every {TrainingOptions(steps=1).hash_every} steps", "comparison"),
        )
    ]
    text = f"""{len(found)} false alarms in {HEALTHY:,} healthy steps of a tiny model: {HEALTHY // AT_ONCE} runs of
{AT_ONCE:,} steps under different plans on two or four ranks of a CPU.

| two replicas, hidden size {SIZES["hidden_size"]}, {SIZES["num_hidden_layers"]} layers | median | processor |
|---|--:|--:|
{chr(10).join(rows)}
| telemetry in all (limit {MOST_OF_STEP:.0%}) | {share:.2%} | {cpu:.2%} |"""
    text += "".join(f"\n\n- {alarm}" for alarm in found)
    return text, not found and share <= MOST_OF_STEP
