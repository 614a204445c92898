"""Zero-bubble schedules under a memory limit, one stage a rank (Qi et al., arXiv 2401.10241, section 3.1).

The backward pass is split: I, the gradient of the input, goes on to the previous stage at once; W, the gradient of
the weights, fills gaps. Orders of F and I that are tried: F as often as 1F1B begins with, then I and F in turn (the
paper's ZB-H1); F as often as time allows until the first I comes back (ZB-H2 where passes are equal), rounded up on the
first ranks, all of them or half or none, and down on the others; 1F1B with W right behind I, so that no list is longer
than it; and orders that are played (``schedules/split_backward/shortest_lists.py``). With equal times and no
messages that is the hand-made ZB-H1 and ZB-H2: a makespan of 3M + P − 1 within 1F1B's memory of P micro-batches, and
of 3M within twice of that. For the times of the paper's appendix and either memory the makespans of its released
scheduler are reached or passed.
"""

from functools import partial
from math import ceil, floor

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import PASS_MEMORY, Pipeline
from meshwright.schedules.split_backward.pass_numbers import Orders
from meshwright.schedules.split_backward.pipeline_state import EPSILON, PlayedPasses
from meshwright.schedules.split_backward.shortest_lists import RULES, Source, filled_orders, shortest_lists

ROUNDED_UP = (0.0, 0.5, 1.0)
"""Parts of the ranks."""


def zero_bubble(pipeline: Pipeline) -> list[list[Action]]:
    """Generate lists within the plan's memory limit, by default 1F1B's memory."""
    return shortest_lists(pipeline, pipeline.memory_limit, SOURCES)


def zb_h1(pipeline: Pipeline) -> list[list[Action]]:
    """Generate lists that hold at most P micro-batches' activations on any rank."""
    return shortest_lists(pipeline, PASS_MEMORY * pipeline.ranks, SOURCES)


def zb_h2(pipeline: Pipeline) -> list[list[Action]]:
    """Generate lists that hold at most 2P micro-batches' activations on any rank.

    Of equally long ones those that begin with as many F as come before the first I, as its authors' lists do.
    """
    return shortest_lists(pipeline, 2 * PASS_MEMORY * pipeline.ranks, (*AHEAD, _as_1f1b))


def _as_1f1b(pipeline: Pipeline, limit: float) -> list[PlayedPasses]:
    """Return filled lists with W right after I: never longer than 1F1B for any stage times."""
    warm_up = [min(int(limit + EPSILON), pipeline.ranks - rank) for rank in range(pipeline.ranks)]
    return filled_orders(_in_turn(pipeline, warm_up), pipeline, [limit] * pipeline.ranks, (*RULES, "at-once"))


def _until_first_input(pipeline: Pipeline, limit: float, part: float) -> list[PlayedPasses]:
    warm_up = _warm_up(pipeline, int(limit + EPSILON), round(part * pipeline.ranks))
    return filled_orders(_in_turn(pipeline, warm_up), pipeline, [limit] * pipeline.ranks)


AHEAD: tuple[Source, ...] = tuple(partial(_until_first_input, part=part) for part in ROUNDED_UP)
SOURCES: tuple[Source, ...] = (_as_1f1b, *AHEAD)


def _warm_up(pipeline: Pipeline, most: int, rounded_up: int) -> list[int]:
    """Count the F that fit before the first I comes back; no rank has more than the one before it."""
    times, counts = pipeline.times, list[int]()
    for rank in range(pipeline.ranks):
        behind = sum(times.forward[rank:]) + sum(times.input[rank + 1 :])
        wait = behind + 2 * (pipeline.ranks - 1 - rank) * times.message
        if wait < most * times.forward[rank]:
            passes = wait / times.forward[rank]
            most = max(1, ceil(passes - EPSILON) if rank < rounded_up else floor(passes + EPSILON))
        counts.append(most)
    return counts


def _in_turn(pipeline: Pipeline, warm_up: list[int]) -> Orders:
    """Every rank's first F, then I and F in turn, then the rest of the I."""
    count, ranks = pipeline.micro_batches, pipeline.ranks
    orders = []
    for rank, first in enumerate(warm_up):
        ahead = min(first, count)
        turns = [ranks + rank, rank] * (count - ahead)
        orders.append([rank] * ahead + turns + [ranks + rank] * ahead)
    return orders
