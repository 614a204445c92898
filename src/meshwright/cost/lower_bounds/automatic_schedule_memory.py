"""A lower bound of the memory of an automatic schedule's ranks, computed without its action lists.

Its limit only says what no rank holds more than. But all its lists (``schedules/split_backward/shortest_lists.py``)
begin alike: a rank runs F of its first stage, as they come from the ranks before, until its memory is full, all
micro-batches have begun, or something else can come. Something else is the first I, or F of the rank's second stage;
the first micro-batch brings it, through all stages between. Till then F come no slower than the slowest of the ranks
up to this one runs them. With one stage a rank an order that begins as 1F1B does is tried too, so that no more than
P − r passes are certain on rank r; with two in a V one that begins with 2P − r − 1; and memory for one pass is left
for each later stage. Lists are made for rounded times (``schedules/stage_times.py``): half a step is allowed for
every one of them, and one pass for a rank that waits for what is about to come.
"""

import numpy as np

from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.schedules.stage_times import STEPS


def leading_forward_passes(group: PlanGroup) -> Floats:
    """F of every rank's first stage that end before anything else can come: (n, P). Backward passes are split."""
    weight = np.zeros_like(group.input_s) if group.weight_s is None else group.weight_s
    half = (group.forward_s + group.input_s + weight).mean(1, keepdims=True) / (3 * STEPS) / 2
    message = np.maximum(0.0, group.message_s[:, None] - half)
    first, ranks = group.stages_at[0], np.arange(group.ranks)
    forward, crossed = _before(group.forward_s - half), _before(group.crosses[None])
    if group.chunks > 1:
        until, messages = forward[:, group.stages_at[1]], crossed[:, group.stages_at[1]]
    else:
        back = _before(group.input_s - half)
        until = forward[:, -1:] + back[:, -1:] - back[:, 1 + ranks]
        messages = 2 * crossed[:, -1:] - crossed[:, first]
    wait = until - forward[:, first] + (messages - crossed[:, first]) * message
    pace = np.maximum.accumulate(group.forward_s[:, first] + half, 1)
    return np.asarray(np.maximum(1, np.minimum.accumulate(np.floor(wait / pace) - 1, 1)))


def min_passes_held(group: PlanGroup, before_others: Floats, micro_batches: Floats, most: Floats) -> Floats:
    """Forward passes of its first stage that every rank holds at once at least; ``most`` is the limit: (n, P)."""
    behind = group.ranks - np.arange(group.ranks)
    by_hand = behind if group.chunks == 1 else behind + group.ranks - 1
    surely = np.minimum(most - (group.chunks - 1), by_hand)
    return np.maximum(1, np.minimum(np.minimum(surely, micro_batches[:, None]), before_others))


def _before(of_stages: Floats) -> Floats:
    """Return the sums over the stages before each one, and over all: (n, K) → (n, K + 1)."""
    return np.pad(np.cumsum(of_stages, 1), ((0, 0), (1, 0)))
