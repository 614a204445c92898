"""Step time of a group of plans: pipeline, exposed gathers and reductions, norm, optimizer, as arrays.

Mirrors ``simulate/simulator.py`` action by action, in closed form; where the simulation follows every rank, this
follows the chain that ends the step. What it leaves out: how long a rank waits between its last passes. Where the
vocabulary is spread everything is played (``group_share.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.group import Floats, Group, Ints
from meshwright.cost.group_share import share_passes, share_seconds
from meshwright.cost.group_states import played_with_states, states_around
from meshwright.cost.mirrored import mirrored_seconds
from meshwright.cost.pace import step_length
from meshwright.cost.pipeline import pipeline_seconds
from meshwright.cost.played import Passes, SharePasses, Span, played_span
from meshwright.cost.prices import collective_seconds
from meshwright.cost.step import (
    beside_gather,
    optimizer_seconds,
    reduction_slowdown,
    reduction_tail,
    send_occupancy,
)
from meshwright.program.step import NORM_BYTES, tied_reduction
from meshwright.program.step_validation import norm_axes
from meshwright.schedule.action import BROADCASTS
from meshwright.schedule.choice import ScheduleChoice

PARTS = ("compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host")
OFFLOAD = "offload"
"""What waiting for copies of activations to the host and back adds; a category of plans that have such copies."""


@dataclass(frozen=True)
class Pipelined:
    """What the schedule's form needs of a group, with sends counted into the passes; messages are (n,)."""

    passes: Passes
    message: Floats


@dataclass(frozen=True)
class Length:
    """Length of a schedule with messages, and ``silent`` if they took no time; ``span`` where it was played.

    ``copied`` is by how much copies to the host make it longer, ``exchanged`` by how much exchanges of units do, to the
    end of the last one.
    """

    seconds: Floats
    silent: Floats
    span: Span | None = None
    exchanged: Floats | float = 0.0
    copied: Floats | float = 0.0


def pipelined(group: Group, messages: bool) -> Pipelined:
    """What the form of a group's schedule needs, times that an automatic one looks at included."""
    sent = with_sends(group, messages)
    return Pipelined(sent.passes._replace(times=group.times), sent.message)


def with_sends(group: Group, messages: bool) -> Pipelined:
    """Stage times of a group; a send keeps its rank for a part of the message's time."""
    message = group.message_s if messages else np.zeros(len(group.plans))
    kept = send_occupancy(group.split or group.chunks > 1, group.setting.stack.overlap_p2p, group.forms)
    leaves = group.crosses * (kept * message)[:, None]
    down, up = leaves, np.roll(leaves, 1, axis=1)
    share = None
    if group.share is not None:
        share = share_passes(group, group.share, messages)
        broadcast = {
            kind: messages * group.share.occupancy * group.share.exchanges[kind] for kind in BROADCASTS
        }
        down[:, -1], up[:, 0] = broadcast["BROADCAST_F"], broadcast["BROADCAST_B"]
    passes = Passes(group.forward_s + down, group.input_s + up, group.weight_s, share=share)
    return Pipelined(passes, (1 - kept) * message)


def pipeline_lengths(groups: Sequence[Group]) -> list[Length]:
    """Length of every group's schedule; those with a form and of one shape are computed together."""
    lengths: dict[int, Length] = {}
    shapes: dict[tuple[ScheduleChoice, int, int], list[int]] = {}
    for index, group in enumerate(groups):
        if group.formed and group.copies is None:
            shapes.setdefault((group.schedule, group.ranks, group.chunks), []).append(index)
        else:
            lengths[index] = _played_length(group)
    for (schedule, ranks, _), members in shapes.items():
        parts = [pipelined(groups[i], messages) for messages in (True, False) for i in members]
        counts = np.concatenate([groups[i].micro_batches for i in members] * 2)
        forward, backward = (
            np.concatenate([getattr(part.passes, name) for part in parts]) for name in ("forward", "backward")
        )
        message = np.concatenate([part.message for part in parts])
        seconds = pipeline_seconds(schedule, forward, backward, message, counts, ranks)
        cuts = np.cumsum([len(part.message) for part in parts])[:-1]
        pieces = np.split(seconds, cuts)
        for at, index in enumerate(members):
            lengths[index] = Length(pieces[at], pieces[at + len(members)])
    return [lengths[index] for index in range(len(groups))]


def length_of(group: Group, piped: Pipelined) -> Floats:
    """Length of a group's schedule with these times of its stages; units exchange nothing."""
    passes, message, counts = piped.passes, piped.message, group.micro_batches
    if group.formed:
        forward, backward = passes.forward, passes.backward
        return pipeline_seconds(group.schedule, forward, backward, message, counts, group.ranks)
    return step_length(group, played_span(group.schedule, passes, message, counts, group.ranks))


def _played_length(group: Group) -> Length:
    """A schedule without a form; where steps overlap, the rank that is at work for longest sets the pace."""
    loud, quiet = pipelined(group, True), pipelined(group, False)
    passes = Passes(*(_stacked(a, b) for a, b in zip(loud.passes, quiet.passes, strict=True)))
    message = np.concatenate([loud.message, quiet.message])
    counts = np.concatenate([group.micro_batches] * 2)
    span = played_span(group.schedule, passes, message, counts, group.ranks)
    seconds, n = step_length(group, span), len(group.plans)
    alone, slower = span.take(slice(n)), loud.passes._replace(copies=group.copies)
    exchanged: Floats | float = 0.0
    copied: Floats | float = 0.0
    if group.copies is not None:
        alone = played_span(group.schedule, slower, loud.message, group.micro_batches, group.ranks)
        copied = np.maximum(0.0, step_length(group, alone) - seconds[:n])
    if group.by_unit:
        slower = slower._replace(exchanges=group.unit_exchanges)
        whole = played_span(group.schedule, slower, loud.message, group.micro_batches, group.ranks)
        exchanged = np.maximum(0.0, step_length(group, whole) - seconds[:n] - copied)
    return Length(seconds[:n], seconds[n:], alone, exchanged, copied)


def _stacked(one: Any, other: Any) -> Any:
    """Both, one after the other; nothing where there is none."""
    if one is None:
        return None
    if isinstance(one, SharePasses):
        return SharePasses(*(_stacked(a, b) for a, b in zip(one, other, strict=True)))
    if isinstance(one, dict):
        return {key: _stacked(one[key], other[key]) for key in one}
    return one + other if isinstance(one, list) else np.concatenate([one, other])


def step_parts(group: Group, of: Length) -> dict[str, Floats]:
    """Seconds of a step by category, for every plan; their sum is the step time.

    compute, tp, cp, ep, host and the part of dp inside passes are those of the busiest pipeline rank; pp is what
    messages add to the pipeline, bubble the rest of its length; dp holds all else that is exposed.
    """
    length, silent = of.seconds, of.silent
    forward, message = group.forward_s, group.message_s
    parts = _busiest(group, forward + group.backward_s)
    busy = sum(parts.values(), start=np.zeros(len(message)))
    parts["pp"] = np.maximum(0.0, length - silent)
    parts["bubble"] = np.maximum(0.0, length - busy - parts["pp"])
    gather, final = _gathers(group, forward, message)
    if played_with_states(group) and of.span is not None:
        loud = pipelined(group, True)
        passes = loud.passes._replace(copies=group.copies)
        states = states_around(group, passes, loud.message, of.span)
    else:
        states = gather + of.exchanged + _reductions(group, of.span)
    around = states + norm_and_ties(group)
    parts["dp"] = parts.get("dp", 0.0) + around + (length - busy - parts["pp"] - parts["bubble"]) + final
    parts["optimizer"] = optimizer(group)
    found = {name: parts.get(name, np.zeros(len(message))) for name in PARTS}
    if group.plans.some_offload:
        found[OFFLOAD] = of.copied + _lacking(group, sum(found.values(), start=of.copied + 0 * message))
    return found


def _lacking(group: Group, step_s: Floats) -> Floats:
    """What a step with copies, which is played, lacks of one without them, which has a form: copies save no time."""
    if group.copies is None or not group.formed:
        return np.zeros(len(step_s))
    (length,) = pipeline_lengths([alone := group.without_copies])
    return np.maximum(0.0, sum(step_parts(alone, length).values(), start=0 * step_s) - step_s)


def _busiest(group: Group, stage_times: Floats) -> dict[str, Floats]:
    """What the busiest rank spends its passes on, times the number of micro-batches."""
    rank = group.per_rank(stage_times).argmax(1)
    rows = np.arange(len(rank))
    passes = [group.priced(kind) for kind in group.pass_kinds]
    names = {name for kind in passes for parts in kind for name in parts}
    result = {}
    for name in sorted(names):
        per_kind = [
            sum((group.per_plan(parts.get(name, 0.0)) for parts in of_stage), start=np.zeros(len(rank)))
            for of_stage in zip(*passes, strict=True)
        ]
        result[name] = group.visits * group.per_rank(group.spread(per_kind))[rows, rank]
    if group.share is not None:
        result["compute"] = result["compute"] + group.micro_batches * group.share.whole_s
    return result


def _gathers(group: Group, forward: Floats, message: Floats) -> tuple[Floats, Floats]:
    """What gathers of whole stages add before the pipeline's end, and after the optimizer."""
    nothing = np.zeros(len(message))
    if group.sharding not in ("zero1", "zero2") and group.mode.gather != "per-step":
        return nothing, nothing
    seconds = group.seconds(group.gathers_of)
    beside = group.setting.stack.overlap_parameter_gather
    if not beside and group.mode.gather != "per-step":
        last = group.per_rank(seconds).max(1)
        return nothing, last + share_seconds(group, group.share, group.gathers_of) if group.share else last
    if played_with_states(group) or _gathers_alone(group):
        return nothing, nothing  # played, or a matter of each rank
    return _first_passes(group, forward, message, seconds, beside), nothing


def _first_passes(group: Group, forward: Floats, message: Floats, seconds: Floats, beside: bool) -> Floats:
    """How much later the first micro-batch has passed all stages because of gathers."""
    arrival = np.zeros(len(message))
    ideal = np.zeros(len(message))
    whole = group.per_rank(seconds)
    in_turn = np.cumsum(seconds[:, group.stages_at], 1)
    for stage in range(group.ranks):
        turn = group.stages_at[:, stage].tolist().index(stage)
        gathered = in_turn[:, turn, stage] if beside else whole[:, stage]
        start = arrival if beside else np.maximum(arrival, gathered)
        left = np.maximum(0.0, gathered - start)
        end = start + (beside_gather(forward[:, stage], left, group.forms) if beside else forward[:, stage])
        arrival = end + message
        ideal = ideal + forward[:, stage] + message
    return arrival - ideal


def _reductions(group: Group, span: Span | None) -> Floats:
    """What gradient reductions add after (and, by slowing it down, inside) the last backward passes.

    Ranks that have the same layers need the same time to sum up what they have reduced: the later one counts.
    """
    stack, once = group.setting.stack, group.mode.reduce == "per-step"
    seconds = group.seconds(lambda stage: group.reductions_of(stage) if once else ())
    own = _own_gathers(group)
    if not stack.overlap_gradient_reduction:
        return _ranks_end(group, span, own + group.per_rank(seconds) + mirrored_seconds(group))
    units = np.array([len(blocks) for blocks in group.stages])
    last = group.backward_s if group.weight_s is None else group.weight_s
    tail = _first_chunks_tail(group, seconds, last, units, span)
    slowdown = np.asarray(reduction_slowdown(seconds, last, units, group.forms))
    if group.kind.chains > 1:  # the passes of another chain come behind a slowed W
        tail = tail + slowdown[:, group.stages_at[1:]].sum(1)
    after = _ranks_end(group, span, own + tail + mirrored_seconds(group))
    return after if group.split else after + slowdown.sum(1)  # else a slowed W holds up no message


def _first_chunks_tail(
    group: Group, seconds: Floats, backward: Floats, units: Ints, span: Span | None
) -> Floats:
    """What is left of each rank's reductions when its last pass ends: (n, P).

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
            reduction_tail(seconds[:, chunk], backward[:, chunk], units[chunk], group.forms, ahead)
        )
    return tail


def _ranks_end(group: Group, span: Span | None, after: Floats) -> Floats:
    """How much later than the schedule the last rank is done, when rank r still needs ``after[r]``.

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


def _gathers_alone(group: Group) -> bool:
    """Ranks begin their steps when they have ended the one before, and not because others have passed something on."""
    return group.steps_overlap and group.kind.chains == 1


def _own_gathers(group: Group) -> Floats:
    """By how much gathers of whole stages delay each rank, where steps overlap and nobody waits meanwhile: (n, P)."""
    beside = group.setting.stack.overlap_parameter_gather
    first = group.mode.gather == "per-step" or (group.sharding in ("zero1", "zero2") and beside)
    if not (_gathers_alone(group) and first):
        return np.zeros((len(group.plans), group.ranks))
    seconds = group.seconds(group.gathers_of)
    if not beside:
        return group.per_rank(seconds)
    turn = group.stages_at[0]
    forward = group.forward_s[:, turn]
    return np.asarray(beside_gather(forward, seconds[:, turn], group.forms)) - forward


def norm_and_ties(group: Group) -> Floats:
    """Seconds of the norm of gradients, and of the reduction of a table that two ranks hold."""
    size, local = group.mesh.group(norm_axes(group.steps_overlap))
    seconds = np.asarray(group.forms.collective("all-reduce", NORM_BYTES, size, local))
    if group.tied_apart:
        embedding = group.per_plan_elements(group.block_elements[group.stages[0][0]])
        tied = tied_reduction(embedding, group.sharding, group.shape, group.setting.stack)
        seconds = seconds + collective_seconds(tied, group.mesh, group.forms)
    return seconds


def optimizer(group: Group) -> Floats:
    """The slowest rank's optimizer step."""
    return np.asarray(optimizer_seconds(group.held("optimizer"), group.forms)).max(1)
