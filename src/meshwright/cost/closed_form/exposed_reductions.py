"""Exposed time of gradient reductions after the last backward passes, and their slow-down inside, as arrays."""

import numpy as np

from meshwright.cost.closed_form.bidirectional_reduction_times import mirrored_seconds
from meshwright.cost.closed_form.exposed_gathers import rank_gather_delays
from meshwright.cost.closed_form.overlap_and_optimizer import reduction_slowdown, reduction_tail
from meshwright.cost.closed_form.plan_group import Floats, Ints, PlanGroup
from meshwright.cost.closed_form.step_time import step_length
from meshwright.cost.pipeline_time.time_action_lists import Span


def exposed_reductions(group: PlanGroup, span: Span | None) -> Floats:
    """Return the seconds that reductions add after and, by slowing them down, inside the last backward passes.

    Ranks that have the same layers need the same time to sum up what they have reduced: the later one counts.
    """
    stack, once = group.setting.stack, not group.by_unit
    seconds = group.seconds(lambda part, blocks: group.reductions_of(part, blocks) if once else ())
    own = rank_gather_delays(group)
    if not stack.overlap_gradient_reduction:
        return _ranks_end(group, span, own + group.per_rank(seconds) + mirrored_seconds(group))
    units = np.array([len(blocks) for blocks in group.stages])
    last = group.backward_s if group.weight_s is None else group.weight_s
    tail = _first_chunks_tail(group, seconds, last, units, span)
    slowdown = np.asarray(reduction_slowdown(seconds, last, units, group.stage_forms))
    if group.split:  # a slowed W holds up no message, but what comes behind it on its rank
        tail = tail + slowdown[:, group.stages_at].sum(1)
    after = _ranks_end(group, span, own + tail + mirrored_seconds(group))
    return after if group.split else after + _held_up(group, slowdown)


def _held_up(group: PlanGroup, slowdown: Floats) -> Floats:
    """Return the delay of the last gradients on the first stage from slowed-down backward passes, in seconds: (n,).

    They come back through all stages, and each hands its delay on to the next, unless that one is behind with its
    other work anyway.
    """
    slowed, usual = _last_gradients(group, np.stack([group.backward_s + slowdown, group.backward_s]))
    return np.asarray(slowed - usual)


def _last_gradients(group: PlanGroup, last: Floats) -> Floats:
    """Return when the last micro-batch's gradients have passed all stages: (2, n, K) → (2, n).

    A rank works off what else it holds of a chunk before it comes to the last micro-batch. Where forward passes all
    come first that is the whole batch, from the first gradients on. With one chunk to a rank it is what came between
    in 1F1B, from the last forward pass on; with several the rest of a round, behind the last micro-batch of the chunk
    before. Seconds from where the last stage begins.
    """
    ranks, message, counts = group.ranks, group.message_s[:, None], group.micro_batches[:, None]
    forward_first = group.schedule.declared_in_flight(ranks - 1, ranks, 2, 1) == 2
    each = (group.backward_s if forward_first else group.forward_s)[:, -ranks:] + message
    behind = np.cumsum(each[:, ::-1], 1)[:, ::-1] - each
    others = counts - 1 if forward_first else np.minimum(counts, ranks) - 1
    held = others if forward_first else np.minimum(counts, np.arange(ranks, 0, -1)) - 1
    begin: Floats = behind if forward_first else -behind
    for number in reversed(range(group.chunks)):
        here = slice(number * ranks, (number + 1) * ranks)
        own = np.broadcast_to(begin + held * group.backward_s[:, here], last[..., here].shape).copy()
        if number + 1 < group.chunks:
            own[..., -1] = np.maximum(own[..., -1], begin[..., 0] + group.message_s)
        passed = np.cumsum(last[..., here] + message, -1)
        latest = np.maximum.accumulate((own + passed)[..., ::-1], -1)[..., ::-1]
        begin, held = latest - passed + last[..., here], others
    return begin[..., 0]


def _first_chunks_tail(
    group: PlanGroup, seconds: Floats, backward: Floats, units: Ints, span: Span | None
) -> Floats:
    """Return the seconds of each rank's reductions that remain when its last pass ends: (n, P).

    A rank's reductions follow each other. Between the last pass of its chunk c+1 and that of its chunk c the last
    micro-batch comes back through the P−1 stages between the two: what chunk c+1's reduction needs beyond that
    delays chunk c's. Where the schedule was played the time between the two is known.
    """
    ranks, message = group.ranks, group.message_s[:, None]
    passed = np.cumsum(backward, 1)
    tail = np.zeros((len(seconds), ranks))
    for number in reversed(range(group.chunks)):
        chunk = group.stages_at[number]
        ahead = np.zeros_like(tail)
        if number + 1 < group.chunks:
            between = passed[:, group.stages_at[number + 1] - 1] - passed[:, chunk] + ranks * message
            if span is not None:
                ended = span.stage_end[:, group.stages_at[[number, number + 1]]]
                between = ended[:, 0] - backward[:, chunk] - ended[:, 1]
            ahead = np.maximum(0.0, tail - between)
        tail = np.asarray(
            reduction_tail(seconds[:, chunk], backward[:, chunk], units[chunk], group.stage_forms, ahead)
        )
    return tail


def _ranks_end(group: PlanGroup, span: Span | None, after: Floats) -> Floats:
    """Return the seconds from the schedule's end to the last rank's end if rank r still needs ``after[r]``.

    Where the schedule was not played rank r ends its passes Σ_{j<r} B_j before rank 0, and begins them Σ_{j<r} F_j
    behind it.
    """
    if span is not None:
        return step_length(group, span, after) - step_length(group, span)
    first, forward = group.backward_s[:, : group.ranks], group.forward_s[:, : group.ranks]
    earlier = np.cumsum(first, 1) - first
    if group.steps_overlap and not group.tied_apart:
        earlier = earlier + np.cumsum(forward, 1) - forward
    return np.maximum(0.0, (after - earlier).max(1))
