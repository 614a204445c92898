"""V schedules of controllable memory: a building block repeated every six ticks (Qi et al., arXiv 2405.15362).

Two chunks a rank, placed as a V, so that rank 0 holds the first stage and the last. One micro-batch's passes are laid
out on a grid of ticks of one F, I or W of a chunk; a pass follows that of the rank before after a fixed number of
ticks: F of chunk 0 after f₀, F of chunk 1 after f₁, I of chunk 1 after i₁, I of chunk 0 after i₀. The next micro-batch
does the same six ticks later, so two passes of a rank collide only when their ticks are equal modulo 6. A chunk's
activations live from its F to its I (and W); summed over both chunks of a rank and divided by the period that is

    2(P − 1)·(f₀ + i₀)/6 chunks in flight when f₀ + i₀ = f₁ + i₁,

P/3 micro-batches for f₀ + i₀ = 2 (V-Min) and P/2 for 3 (V-Half), against P of 1F1B. W fills the two free ticks of each
period, the oldest first, and whatever is free at the ends. The order of the ticks is the list; real times may differ.
"""

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import Pipeline

PERIOD = 6
Offsets = tuple[int, int, int, int]
"""Ticks from rank to rank of F of chunk 0, F of chunk 1, I of chunk 1, I of chunk 0."""

V_HALF: Offsets = (2, 1, 2, 1)
V_MIN: Offsets = (1, 1, 1, 1)


def v_half(pipeline: Pipeline) -> list[list[Action]]:
    """About half of 1F1B's activations and half of its bubble; V is 2."""
    return block_lists(pipeline.ranks, pipeline.micro_batches, V_HALF)


def v_min(pipeline: Pipeline) -> list[list[Action]]:
    """About a third of 1F1B's activations and two thirds of its bubble; V is 2."""
    return block_lists(pipeline.ranks, pipeline.micro_batches, V_MIN)


def block_lists(ranks: int, micro_batches: int, offsets: Offsets) -> list[list[Action]]:
    """One list per rank for a building block."""
    return [
        _rank_list(rank, ranks, micro_batches, first_ticks(ranks, offsets)[rank]) for rank in range(ranks)
    ]


def first_ticks(ranks: int, offsets: Offsets) -> list[tuple[int, int, int, int]]:
    """Ticks of micro-batch 0 on every rank: F and F, I and I in the order of the data's way.

    Where the way turns back it waits until no two passes of a rank have equal ticks modulo 6: each of the three
    turns waits for the least time that some choice of the later turns allows.
    """
    last = ranks - 1
    f0, f1, i1, i0 = offsets
    for waits in _smallest_first():
        turn_f = last * f0 + 1 + waits[0]
        turn_i = turn_f + last * f1 + 1 + waits[1]
        turn_b = turn_i + last * i1 + 1 + waits[2]
        ticks = [
            (r * f0, turn_f + (last - r) * f1, turn_i + r * i1, turn_b + (last - r) * i0)
            for r in range(ranks)
        ]
        if all(len({tick % PERIOD for tick in of_rank}) == len(of_rank) for of_rank in ticks):
            return ticks
    raise AssertionError("no way to lay out the building block")


def _smallest_first() -> list[tuple[int, int, int]]:
    """Return the waits at the three turns, those with the smallest sum first."""
    return sorted(
        ((a, b, c) for a in range(PERIOD) for b in range(PERIOD) for c in range(PERIOD)),
        key=lambda waits: (sum(waits), waits),
    )


def _rank_list(rank: int, ranks: int, micro_batches: int, first: tuple[int, int, int, int]) -> list[Action]:
    low, high = rank, 2 * ranks - 1 - rank
    kinds = (("F", low), ("F", high), ("I", high), ("I", low))
    placed = {
        tick + PERIOD * m: (kind, stage, m)
        for m in range(micro_batches)
        for tick, (kind, stage) in zip(first, kinds, strict=True)
    }
    actions: list[Action] = []
    waiting: list[tuple[int, int]] = []
    for tick in range(max(placed) + 1):
        if tick in placed:
            kind, stage, m = placed[tick]
            actions.append(Action(kind, stage, m))  # type: ignore[arg-type]
            if kind == "I":
                waiting.append((stage, m))
        elif waiting:
            actions.append(Action("W", *waiting.pop(0)))
    return actions + [Action("W", stage, m) for stage, m in waiting]
