"""Count false alarms in healthy steps, and measure what watching a run costs.

The cost is measured in one run: blocks of steps with and without telemetry take turns, so that the load of the host is
the same for both. Comparisons of all ranks come on top, spread over the steps between two of them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
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
BLOCK, BLOCKS = 5, 24
"""Steps with or without telemetry in a row, and how many of these blocks; the first two are left out."""
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
        run.train("run", BLOCK * BLOCKS, "fp32", hash_every=2 * BLOCK)
        times = json.loads((Path(folder) / "run" / TIMES).read_text(encoding="utf-8"))
    steps = times["steps"][2 * BLOCK :]
    on, off = ([of for n, of in enumerate(steps) if _watches(n) == watched] for watched in (True, False))
    return {"with_s": median(on), "without_s": median(off), "comparison_s": median(times["comparisons"])}


def _watches(step: int) -> bool:
    """Return whether a step has telemetry."""
    return step // BLOCK % 2 == 0


@contextmanager
def _taking_turns() -> Iterator[None]:
    """Switch the telemetry of ranks that are forked inside the block on and off, and record seconds on rank 0."""
    steps: list[float] = []
    comparisons: list[float] = []
    take, compare = Loop._step, RankHealth.compare

    def step(loop: Loop, number: int) -> None:
        _switch(loop, on=_watches(number))
        began = perf_counter()
        take(loop, number)
        steps.append(perf_counter() - began)

    def compared(health: RankHealth, number: int) -> None:
        began = perf_counter()
        compare(health, number)
        comparisons.append(perf_counter() - began)
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
    every = TrainingOptions(steps=1).hash_every
    share = cost["with_s"] / cost["without_s"] - 1 + cost["comparison_s"] / every / cost["without_s"]
    text = f"""{len(found)} false alarms in {HEALTHY:,} healthy steps of a tiny model: {HEALTHY // AT_ONCE} runs of
{AT_ONCE:,} steps under different plans on two or four ranks of a CPU.

| two replicas, hidden size {SIZES["hidden_size"]}, {SIZES["num_hidden_layers"]} layers | median |
|---|--:|
| step without telemetry | {cost["without_s"] * 1e3:.2f} ms |
| step with telemetry | {cost["with_s"] * 1e3:.2f} ms |
| comparison of all ranks, every {every} steps | {cost["comparison_s"] * 1e3:.2f} ms |
| telemetry in all | {share:.2%} of a step (limit {MOST_OF_STEP:.0%}) |"""
    text += "".join(f"\n\n- {alarm}" for alarm in found)
    return text, not found and share <= MOST_OF_STEP
