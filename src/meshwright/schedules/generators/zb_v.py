"""ZB-V: zero bubble with 1F1B's memory, two chunks a rank in a V (Qi et al., arXiv 2405.15362, 2401.10241 section 6).

Rank 0 holds the first stage and the last, so the first I is there P passes earlier than in a loop. By hand, for equal
times: rank r begins with 2(P−r) − 1 F of its first chunk, then r times F of the second and F of the first, then P − r
times F and I of the second, and goes on with F and I of the first and F and I of the second in turn; at the end r times
I of either chunk, and P − r times I of the first. W fills the gaps
(``schedules/split_backward/weight_gradient_filling.py``). That holds P micro-batches and has no bubble at all from M
= 2P on. For other times and limits the played orders are tried as well
(``schedules/split_backward/shortest_lists.py``).
"""

from collections import Counter

from meshwright.schedules.action import Action
from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Pass
from meshwright.schedules.split_backward.pipeline_state import PlayedPasses
from meshwright.schedules.split_backward.shortest_lists import filled_orders, shortest_lists


def zb_v(pipeline: Pipeline) -> list[list[Action]]:
    """Generate lists within the plan's memory limit, by default 1F1B's memory; V is 2."""
    return shortest_lists(pipeline, pipeline.memory_limit, (_by_hand,))


def _by_hand(pipeline: Pipeline, limit: float) -> list[PlayedPasses]:
    ranks, micro_batches = pipeline.ranks, pipeline.micro_batches
    orders = [_order(rank, ranks, micro_batches) for rank in range(ranks)]
    return filled_orders(orders, pipeline, [limit] * ranks)


def _order(rank: int, ranks: int, micro_batches: int) -> list[Pass]:
    """F and I of a rank. The ends take 2P micro-batches; of fewer the passes that are too many are left out."""
    stages, count = 2 * ranks, max(micro_batches, 2 * ranks)
    low, high = rank, stages - 1 - rank
    f_low, f_high, i_low, i_high = low, high, stages + low, stages + high
    warm_up = [f_low] * (2 * (ranks - rank) - 1) + [f_high, f_low] * rank + [f_high, i_high] * (ranks - rank)
    more = count - warm_up.count(f_low)
    steady = [f_low, i_low, f_high, i_high] * more + [i_low, f_high, i_high] * (count - ranks - more)
    order = warm_up + steady + [i_low, i_high] * rank + [i_low] * (ranks - rank)
    return _of_first(order, micro_batches)


def _of_first(order: list[Pass], micro_batches: int) -> list[Pass]:
    seen, kept = Counter[Pass](), []
    for code in order:
        seen[code] += 1
        if seen[code] <= micro_batches:
            kept.append(code)
    return kept
