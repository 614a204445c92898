"""Kill three of eight replicas of a run and let three join; compare its losses with the reference."""

import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from changing_runs import ChangingRun, largest_difference
from kept_parts import kept
from training_runs import SEQ_LEN, small_run

REPLICAS, LOST, BATCH = 8, (1, 4, 6), 24
STEPS = 10
"""Steps before and after each change."""
TOLERANCE = 1e-9
"""Relative difference of losses and norms in fp64."""


def changed_members() -> tuple[str, bool]:
    """Return the section, and whether the run follows the reference."""
    found = kept("changed members", eight_five_eight)
    numbers = " → ".join(map(str, found["ranks"]))
    text = f"""A Llama of 3 layers in fp64 on {numbers} ranks of one host, {found["steps"]} steps of {BATCH} sequences:
three replicas are killed, the others go on in the same processes, and three ranks of a second command join
(`benchmarks/recover/changed_members.py`). The reference has 8 ranks throughout.

| | |
|---|--:|
| largest relative difference of a loss | {found["loss"]:.1e} (limit {TOLERANCE:.0e}) |
| largest relative difference of a gradient norm | {found["norm"]:.1e} (limit {TOLERANCE:.0e}) |
| from the naming of the loss to the end of the next step | {found["resumed_s"]:.2f} s |
| a step, median | {found["step_s"]:.2f} s |"""
    return text, max(found["loss"], found["norm"]) <= TOLERANCE and found["ranks"][-1] == REPLICAS


def eight_five_eight() -> dict[str, Any]:
    """Return the numbers of ranks, the largest differences to the reference, and seconds."""
    with TemporaryDirectory() as folder:
        plan = small_run(
            Path(folder),
            ranks=REPLICAS,
            layout={"dp_replicate": REPLICAS},
            workload={"seq_len": SEQ_LEN, "global_batch": BATCH},
            pipeline={"micro_batch": 1},
        )
        run = ChangingRun(plan).begin()
        run.wait_steps(STEPS)
        run.kill(*LOST)
        run.wait_steps(STEPS)
        run.join()
        run.wait_steps(STEPS)
        first, _ = run.stop()
        losses, norms = run.reference()
        return {
            "ranks": [REPLICAS, *(change["ranks"] for change in first["members"])],
            "steps": len(losses),
            "loss": largest_difference(first["losses"], losses),
            "norm": largest_difference(first["gradient_norms"], norms),
            "resumed_s": max(fault["resumed_s"] for fault in first["faults"]),
            "step_s": median(line["step_time_s"] for line in run.steps),
            "cores": os.cpu_count(),
        }
