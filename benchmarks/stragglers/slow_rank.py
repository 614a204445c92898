"""Train four replicas of which one is slow, with and without late replicas: seconds of a step, and losses.

The replicas are real processes. The slow one sleeps at the begin of every forward and backward pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import mean, median, pstdev
from time import sleep
from typing import Any

import torch
from stragglers_kept import kept
from text_runs import SEEDS, TextRun

from meshwright.runtime.executor.stage_passes import StageRun

REPLICAS, MICRO_BATCHES, STEPS, LR = 4, 4, 40, 2e-3
SLOW, SLEEPS_S = 3, 0.15
LAST, FIRST = 8, 5
"""Steps at the end whose losses are compared, and at the begin whose seconds do not count."""
SIZES = {"hidden_size": 64, "intermediate_size": 192}
GRADIENT = {"state": "gradient", "over": "dp_replicate"}
WAYS: Mapping[str, tuple[dict[str, object] | None, bool]] = {
    "no replica is slow, all count": (None, False),
    "all count": (None, True),
    "quorum of 3": ({**GRADIENT, "with": {"quorum": 3}}, True),
    "dynamic quorum": ({**GRADIENT, "with": {"quorum": "dynamic"}}, True),
    "code that tolerates 1": ({**GRADIENT, "combine": {"coded": {"tolerate": 1}}}, True),
}
"""Entries, and whether a replica is slow."""
QUICKER = 2.0
"""How many times as quick a step must be with a quorum."""


@contextmanager
def slow_replica(slow: bool) -> Iterator[None]:
    """Let the passes of the slow replica sleep in runs inside the block."""
    forward, backward = StageRun.forward, StageRun.backward

    def sleeping(run: StageRun) -> None:
        if slow and run.plan.communicator.rank == SLOW:
            sleep(SLEEPS_S)

    def slow_forward(self: StageRun, x: torch.Tensor) -> torch.Tensor:
        sleeping(self)
        return forward(self, x)

    def slow_backward(self: StageRun, g: torch.Tensor | None) -> torch.Tensor | None:
        sleeping(self)
        return backward(self, g)

    StageRun.forward, StageRun.backward = slow_forward, slow_backward  # type: ignore[method-assign]
    try:
        yield
    finally:
        StageRun.forward, StageRun.backward = forward, backward  # type: ignore[method-assign]


def runs_of(way: str) -> list[dict[str, Any]]:
    """Return the runs of all seeds."""
    entry, slow = WAYS[way]

    def train(seed: int) -> dict[str, Any]:
        run = TextRun(way, REPLICAS, entry, STEPS, LR, micro_batches=MICRO_BATCHES, sizes=SIZES)
        with slow_replica(slow):
            return run.train(seed)

    return [kept(f"slow rank {way} {seed}", lambda seed=seed: train(seed)) for seed in SEEDS]


def slow_rank() -> tuple[str, bool]:
    """Return the section, and whether a quorum is quicker with equal losses."""
    seconds: dict[str, float] = {}
    ends: dict[str, list[float]] = {}
    lines = [
        f"| way | seconds of a step, median | loss of the last {LAST} steps | spread over seeds | sequences not seen |",
        "|---|--:|--:|--:|--:|",
    ]
    for way in WAYS:
        found = runs_of(way)
        seconds[way] = median(second for run in found for second in run["seconds"][FIRST:])
        ends[way] = [mean(run["losses"][-LAST:]) for run in found]
        unseen = [run["not_seen"] for run in found]
        seen = "–" if unseen[0] is None else f"{mean(unseen):.0f} of {REPLICAS * MICRO_BATCHES * STEPS}"
        lines.append(
            f"| {way} | {seconds[way]:.3f} | {mean(ends[way]):.4f} | {pstdev(ends[way]):.4f} | {seen} |"
        )
    usual, spread = mean(ends["all count"]), max(map(pstdev, ends.values()))
    apart = {way: abs(mean(of) - usual) for way, of in ends.items()}
    gain = seconds["all count"] / seconds["quorum of 3"]
    good = gain >= QUICKER and all(apart[way] <= 2 * spread for way in ("quorum of 3", "dynamic quorum"))
    text = (
        f"A decoder of width {SIZES['hidden_size']} on the example text, {REPLICAS} replicas with {MICRO_BATCHES} "
        f"micro-batches of a sequence of 64 tokens, real processes on this machine's CPU, {STEPS} steps of AdamW. "
        f"Replica {SLOW} sleeps {SLEEPS_S} s in every pass, {2 * MICRO_BATCHES * SLEEPS_S:.1f} s in a step. Measured; "
        f"means of {len(SEEDS)} seeds, seconds without the first {FIRST} steps.\n\n"
        + "\n".join(lines)
        + "\n\n"
        f"Must be shown: with a quorum a step is at least {QUICKER:g} times as quick (it is {gain:.1f} times), and "
        f"mean losses differ by no more than twice the spread over seeds ({2 * spread:.4f}): quorum of 3 "
        f"{apart['quorum of 3']:.4f}, dynamic {apart['dynamic quorum']:.4f}: **{'yes' if good else 'no'}**."
    )
    return text, good
