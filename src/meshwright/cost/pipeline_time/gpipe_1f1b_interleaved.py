"""Closed-form pipeline times of GPipe, 1F1B and interleaved 1F1B with unequal stages, over arrays of plans.

Given the forward and backward time of every stage (n plans × K stages), the time C of a message and the number of
micro-batches M. Notation: T_j = F_j + B_j, P ranks, V chunks.

GPipe (a flow shop with constant times, exact): ΣF + (M−1)·max F + (P−1)·C, and the same for B.

1F1B: the longest path through the schedule goes down and up the pipeline once, ΣT + 2(P−1)C, and spends the
other M−1 micro-batches in loops. A loop between ranks s ≤ e advances e−s+1 micro-batches and costs
Σ_{j=s..e} T_j + 2(e−s)C, so per micro-batch their mean plus 2C(e−s)/(e−s+1). A loop that does not reach the last
rank can only begin after P−1−e micro-batches of warm-up. The path takes the dearest loops.

Interleaved: each rank r is busy for M·Σ_c T_cr and waits for one chunk of all the others, the first chunk of those
before it and the last chunk of those after it; the slowest rank decides. Messages hide in the steady state as
long as C + max(F, B) of a chunk is below T, and are paid 2(PV−1) times at the ends.

Small schedules (at most ``PLAYED_ACTIONS`` actions) are played exactly instead (``time_action_lists.py``): there a
fraction of a loop matters. So are somewhat larger ones whose inner stages differ: the interleaved form takes them
for equal and is up to 7 % short. Held against the event simulation on the lattice of tests.

Schedules without a form (split backward passes) are always played: ``played_span``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.pipeline_time.time_action_lists import Array, periodic_micro_batches, played_seconds
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.gather import GATHERS
from meshwright.schedules.choice import ScheduleChoice

BY_UNIT = GATHERS.index("per-unit")
IN_PASSES = [GATHERS.index(how) for how in ("per-layer", "per-micro-batch")]
PipelineForm = Callable[[Array, Array, Array, NDArray[np.int64], int], Array]


def gpipe_seconds(
    forward: Array, backward: Array, message: Array, micro_batches: NDArray[np.int64], ranks: int
) -> Array:
    """Makespan of GPipe: (n, K), (n, K), (n,), (n,) → (n,)."""
    fill = forward.sum(1) + (micro_batches - 1) * np.maximum(forward.max(1), message)
    drain = backward.sum(1) + (micro_batches - 1) * np.maximum(backward.max(1), message)
    return fill + drain + 2 * (ranks - 1) * message


def one_f_one_b_seconds(
    forward: Array, backward: Array, message: Array, micro_batches: NDArray[np.int64], ranks: int
) -> Array:
    """Makespan of 1F1B."""
    times = forward + backward
    once = times.sum(1) + 2 * (ranks - 1) * message
    if ranks == 1:
        return once + (micro_batches - 1) * times[:, 0]
    prefix = np.concatenate([np.zeros((len(times), 1)), np.cumsum(times, 1)], 1)
    to_last = _best_mean(prefix, message, ranks - 1, micro_batches)
    warm_step = np.maximum(to_last, forward.max(1))
    loops = (micro_batches - 1) * to_last
    for end in range(ranks - 1):
        waiting = np.minimum(micro_batches - 1, ranks - 1 - end)
        left = micro_batches - 1 - waiting
        looped = left * _best_mean(prefix, message, end, left + 1) + waiting * warm_step
        loops = np.maximum(loops, looped)
    return once + loops


def _best_mean(prefix: Array, message: Array, end: int, micro_batches: NDArray[np.int64]) -> Array:
    """Return the mean seconds per micro-batch of the costliest loop that turns at rank ``end`` and fits."""
    starts = np.arange(end + 1)
    lengths = end - starts + 1
    sums = prefix[:, end + 1, None] - prefix[:, starts]
    means = (sums + 2 * (lengths - 1) * message[:, None]) / lengths
    return np.where(lengths < np.maximum(micro_batches, 2)[:, None], means, 0.0).max(1)


def interleaved_seconds(
    forward: Array, backward: Array, message: Array, micro_batches: NDArray[np.int64], ranks: int
) -> Array:
    """Makespan of interleaved 1F1B; stage j is on rank j mod P."""
    plans, stages = forward.shape
    chunks = stages // ranks
    times = (forward + backward).reshape(plans, chunks, ranks)
    busy = times.sum(1)
    before = np.cumsum(times[:, 0], 1) - times[:, 0]
    after = np.cumsum(times[:, -1, ::-1], 1)[:, ::-1] - times[:, -1]
    chain = chunks * (np.maximum(forward, backward).mean(1) + message)
    steady = np.maximum(busy, chain[:, None])
    rank_bound = (micro_batches[:, None] * steady + before + after).max(1)
    return rank_bound + 2 * (stages - 1) * message


FORMS: dict[str, PipelineForm] = {
    "gpipe": gpipe_seconds,
    "1f1b": one_f_one_b_seconds,
    "interleaved-1f1b": interleaved_seconds,
}
"""The closed form of every schedule that has one, with usual knobs."""


def has_form(schedule: ScheduleChoice) -> bool:
    """Return true if a closed form holds for the schedule choice."""
    return schedule.usual and schedule.name in FORMS


def have_forms(plans: PlanArrays) -> NDArray[np.bool_]:
    """Return the mask of plans for which closed forms hold, if nothing is offloaded.

    Not where parameters are gathered by the unit, nor where chunks gather them in every pass: those of the vocabulary
    make stages too uneven.
    """
    with_form = np.array([has_form(choice) for choice in plans.schedules], dtype=np.bool_)[plans.schedule]
    uneven = (plans.virtual_stages > 1) & np.isin(plans.gather, IN_PASSES)
    return np.asarray(with_form & ~uneven & (plans.gather != BY_UNIT))


PLAYED_ACTIONS = 400
PLAYED_UNEVEN_ACTIONS = 1600
EVEN, FAR_FROM_EVEN = 0.02, 0.25
"""Differences of inner stages, as fractions of the smallest one's time."""


def pipeline_seconds(
    schedule: ScheduleChoice,
    forward: Array,
    backward: Array,
    message: Array,
    micro_batches: NDArray[np.int64],
    ranks: int,
) -> Array:
    """Makespan of a schedule, played where that is cheap and by its closed form where it is not.

    Interleaved stages that are far from even are always played: ranks wait for each other's longer chunks, which the
    closed form leaves out. So are those whose first stage is longer than all inner ones, as with an encoder.
    """
    played = periodic_micro_batches(micro_batches, ranks)
    most = np.where(_uneven(forward, EVEN), PLAYED_UNEVEN_ACTIONS, PLAYED_ACTIONS)
    small = 2 * forward.shape[1] * played <= most
    if forward.shape[1] > ranks:
        small = small | _uneven(forward, FAR_FROM_EVEN) | _first_is_longest(forward)
    result = np.empty(len(message))
    for rows in (r for r in (np.flatnonzero(small), np.flatnonzero(~small)) if len(r)):
        f, b, c, m = forward[rows], backward[rows], message[rows], micro_batches[rows]
        if small[rows[0]]:
            result[rows] = played_seconds(schedule, f, b, c, m, ranks)
        else:
            result[rows] = FORMS[schedule.name](f, b, c, m, ranks)
    return result


def _first_is_longest(forward: Array) -> NDArray[np.bool_]:
    """Return the mask of plans whose first stage takes much longer than any inner one."""
    return np.asarray(forward[:, 0] > (1 + FAR_FROM_EVEN) * forward[:, 1:-1].max(1), dtype=np.bool_)


def _uneven(forward: Array, most: float) -> NDArray[np.bool_]:
    """Return the mask of plans whose inner stages differ by more than a fraction."""
    middle = forward[:, 1:-1] if forward.shape[1] > 2 else forward
    return np.asarray(middle.max(1) > (1 + most) * middle.min(1), dtype=np.bool_)
