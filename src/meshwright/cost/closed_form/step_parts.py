"""Step time of a group of plans: pipeline, exposed gathers and reductions, norm, optimizer, as arrays.

Mirrors ``simulate/simulator.py`` action by action, in closed form; where the simulation follows every rank, this
follows the chain that ends the step: what gathers add to it (``exposed_gathers.py``), what reductions do
(``exposed_reductions.py``). Where the vocabulary is spread everything is played (``pipeline_vocabulary_passes.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.cost.closed_form.exposed_exchanges_replayed import (
    exposed_state_exchanges,
    plays_state_exchanges,
)
from meshwright.cost.closed_form.exposed_gathers import exposed_gathers
from meshwright.cost.closed_form.exposed_reductions import exposed_reductions
from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds, send_occupancy
from meshwright.cost.closed_form.pipeline_vocabulary_passes import share_passes
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.closed_form.step_time import step_length
from meshwright.cost.operators.base_change_times import change_seconds
from meshwright.cost.operators.muon_times import orthogonalisation_seconds
from meshwright.cost.operators.perturbation_times import perturbation_seconds, update_seconds
from meshwright.cost.pipeline_time.exchange_times import ExchangeTimes
from meshwright.cost.pipeline_time.forward_only_pipeline import forward_only_seconds
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import pipeline_seconds
from meshwright.cost.pipeline_time.host_state_copies import step_seconds
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD
from meshwright.cost.pipeline_time.time_action_lists import Passes, SharePasses, Span, played_span
from meshwright.plans.arrays.host_states import some_states_on_hosts
from meshwright.plans.forms.host_offload import Offload
from meshwright.program.lowering.optimizer_post_validation import norm_axes
from meshwright.program.lowering.step_collectives import (
    overlapped_kinds,
    step_sums,
    table_exchange,
    tied_reduction,
)
from meshwright.program.model_states.base_changes import CHANGE_AXES, change_gather
from meshwright.program.pass_items import Collective, on_part
from meshwright.schedules.action import BROADCASTS
from meshwright.schedules.choice import ScheduleChoice

PERTURBATIONS = 2
"""Passes over parameters before the update."""
PARTS = ("compute", "tp", "cp", "ep", "pp", "dp", "bubble", "optimizer", "host")


@dataclass(frozen=True)
class Pipelined:
    """Pass times of a group with sends counted in, and message times (n,)."""

    passes: Passes
    message: Floats


@dataclass(frozen=True)
class Length:
    """Length of a schedule with messages, and ``silent`` if they took no time, where that was asked; ``span`` where it
    was played.

    ``copied`` is by how much copies to the host make it longer, ``exchanged`` by how much exchanges of units do, to the
    end of the last one.
    """

    seconds: Floats
    silent: Floats | None = None
    span: Span | None = None
    exchanged: Floats | float = 0.0
    copied: Floats | float = 0.0


def pipelined(group: PlanGroup, messages: bool) -> Pipelined:
    """Return the pass and message times of a group's schedule, with stage times for an automatic one."""
    sent = with_sends(group, messages)
    return Pipelined(sent.passes._replace(times=group.times), sent.message)


def with_sends(group: PlanGroup, messages: bool) -> Pipelined:
    """Stage times of a group; a send keeps its rank for a part of the message's time."""
    message = group.message_s if messages else np.zeros(len(group.plans))
    kept = send_occupancy(group.split or group.chunks > 1, group.setting.stack.overlap_p2p, group.forms)
    if group.layouts is None:
        down = up = group.crosses * (kept * message)[:, None]
    else:
        occupied = messages * group.crosses * np.reshape(kept, (-1, 1))
        down, up = (occupied * seconds for seconds in group.messages_s)
    up = np.roll(up, 1, axis=1) * (not group.forward_only)
    share = None
    if group.share is not None:
        share = share_passes(group, group.share, messages)
        broadcast = {
            kind: messages * group.share.occupancy * group.share.exchanges[kind] for kind in BROADCASTS
        }
        down[:, -1], up[:, 0] = broadcast["BROADCAST_F"], broadcast["BROADCAST_B"]
    passes = Passes(group.forward_s + down, group.input_s + up, group.weight_s, share=share)
    return Pipelined(passes, (1 - kept) * message)


def pipeline_lengths(groups: Sequence[PlanGroup], *, silent: bool = False) -> list[Length]:
    """Length of every group's schedule; those with a form and of one shape are computed together.

    ``silent``: also if messages took no time.
    """
    heard = (True, False) if silent else (True,)
    lengths: dict[int, Length] = {}
    shapes: dict[tuple[ScheduleChoice, int, int], list[int]] = {}
    for index, group in enumerate(groups):
        if group.forward_only:
            lengths[index] = _forward_only_length(group, heard)
        elif group.formed and group.copies is None:
            shapes.setdefault((group.schedule, group.ranks, group.chunks), []).append(index)
        else:
            lengths[index] = _played_length(group, heard)
    for (schedule, ranks, _), members in shapes.items():
        parts = [pipelined(groups[i], messages) for messages in heard for i in members]
        counts = np.concatenate([groups[i].micro_batches for i in members] * len(heard))
        forward, backward = (
            np.concatenate([getattr(part.passes, name) for part in parts]) for name in ("forward", "backward")
        )
        message = np.concatenate([part.message for part in parts])
        seconds = pipeline_seconds(schedule, forward, backward, message, counts, ranks)
        cuts = np.cumsum([len(part.message) for part in parts])[:-1]
        pieces = np.split(seconds, cuts)
        for at, index in enumerate(members):
            quiet = pieces[at + len(members)] if silent else None
            lengths[index] = Length(pieces[at], quiet)
    return [lengths[index] for index in range(len(groups))]


def length_of(group: PlanGroup, piped: Pipelined) -> Floats:
    """Length of a group's schedule with these times of its stages; units exchange nothing."""
    passes, message, counts = piped.passes, piped.message, group.micro_batches
    if group.forward_only:
        return _forward_only(group, piped)
    if group.formed:
        forward, backward = passes.forward, passes.backward
        return pipeline_seconds(group.schedule, forward, backward, message, counts, group.ranks)
    return step_length(group, played_span(group.schedule, passes, message, counts, group.ranks))


def _forward_only_length(group: PlanGroup, heard: Sequence[bool]) -> Length:
    """Return the length of a schedule without backward passes, and of one whose messages take no time."""
    loud, *quiet = (_forward_only(group, pipelined(group, messages)) for messages in heard)
    return Length(loud, quiet[0] if quiet else None)


def _forward_only(group: PlanGroup, piped: Pipelined) -> Floats:
    """Return the seconds of all forward passes, without the longest of the passes over parameters between them."""
    counts, pause = group.micro_batches, perturbation(group)
    split = group.setting.stack.optimizer.splits_perturbations
    ended = forward_only_seconds(piped.passes.forward, piped.message, pause, counts, split=split)
    return np.asarray(ended - PERTURBATIONS * pause.max(1))


def _played_length(group: PlanGroup, heard: Sequence[bool]) -> Length:
    """Return the length of a played schedule; where steps overlap, the busiest rank sets the pace."""
    loud, *quiet = (pipelined(group, messages) for messages in heard)
    passes, message = loud.passes, loud.message
    for other in quiet:
        passes = Passes(*(_stacked(a, b) for a, b in zip(passes, other.passes, strict=True)))
        message = np.concatenate([message, other.message])
    counts = np.concatenate([group.micro_batches] * len(heard))
    span = played_span(group.schedule, passes, message, counts, group.ranks)
    seconds, n = step_length(group, span), len(group.plans)
    alone, slower = span.take(slice(n)), loud.passes._replace(copies=group.copies)
    exchanged: Floats | float = 0.0
    copied: Floats | float = 0.0
    if group.copies is not None:
        alone = played_span(group.schedule, slower, loud.message, group.micro_batches, group.ranks)
        copied = np.maximum(0.0, step_length(group, alone) - seconds[:n])
    if group.by_unit:
        slower = slower._replace(exchanges=_unit_exchanges(group))
        whole = played_span(group.schedule, slower, loud.message, group.micro_batches, group.ranks)
        exchanged = np.maximum(0.0, step_length(group, whole) - seconds[:n] - copied)
    return Length(seconds[:n], seconds[n:] if quiet else None, alone, exchanged, copied)


def _unit_exchanges(group: PlanGroup) -> ExchangeTimes:
    """Return the seconds of a unit's exchanges on every stage."""
    return ExchangeTimes(
        gather=group.seconds(group.gathers_of),
        reduce=group.seconds(group.reductions_of),
        overlapped=overlapped_kinds(group.setting.stack),
        slowdown=group.forms.constants["overlap_slowdown"],
    )


def _without_copies(group: PlanGroup) -> PlanGroup:
    """Return the same plans with all activations on the devices."""
    return replace(group, plans=group.plans.with_choice("offload", Offload()))


def _stacked(one: Any, other: Any) -> Any:
    """Both, one after the other; nothing where there is none."""
    if one is None:
        return None
    if isinstance(one, SharePasses):
        return SharePasses(*(_stacked(a, b) for a, b in zip(one, other, strict=True)))
    if isinstance(one, dict):
        return {key: _stacked(one[key], other[key]) for key in one}
    return one + other if isinstance(one, list) else np.concatenate([one, other])


def step_parts(group: PlanGroup, of: Length) -> dict[str, Floats]:
    """Seconds of a step by category, for every plan; their sum is the step time.

    compute, tp, cp, ep, host and the part of dp inside passes are those of the busiest pipeline rank; pp is what
    messages and changes of layout add, bubble the rest of its length; dp holds all else that is exposed. ``of`` has the
    ``silent`` length too.
    """
    assert of.silent is not None
    length, none = of.seconds, np.zeros(len(group.plans))
    parts = _busiest(group, group.forward_s + group.backward_s)
    busy = sum(parts.values(), start=none)
    messages = np.maximum(0.0, length - of.silent)
    parts["pp"] = parts.get("pp", 0.0) + messages
    parts["bubble"] = np.maximum(0.0, length - busy - messages)
    more = length - busy - messages - parts["bubble"]
    parts["dp"] = parts.get("dp", 0.0) + _exposed(group, of) + more
    parts["optimizer"] = optimizer(group)
    found = {name: parts.get(name, none) for name in PARTS}
    if group.plans.some_offload or some_states_on_hosts(group.plans):
        found[OFFLOAD] = parts.get(OFFLOAD, none) + of.copied + none
    if group.plans.some_offload:
        found[OFFLOAD] = found[OFFLOAD] + _lacking(group, sum(found.values(), start=none))
    return found


def step_total(group: PlanGroup, of: Length) -> Floats:
    """Seconds of a step of every plan."""
    step_s = of.seconds + _exposed(group, of) + optimizer(group) + of.copied
    return step_s + _lacking(group, step_s) if group.plans.some_offload else step_s


def _exposed(group: PlanGroup, of: Length) -> Floats:
    """Seconds that gathers, reductions and sums add around the pipeline."""
    gather, final = exposed_gathers(group, group.forward_s, group.message_s)
    if plays_state_exchanges(group) and of.span is not None:
        loud = pipelined(group, True)
        passes = loud.passes._replace(copies=group.copies)
        states = exposed_state_exchanges(group, passes, loud.message, of.span)
    else:
        states = gather + of.exchanged + exposed_reductions(group, of.span)
    return np.asarray(states + norm_and_ties(group) + final)


def _lacking(group: PlanGroup, step_s: Floats) -> Floats:
    """Return the seconds by which a played step with copies is shorter than its closed form without them."""
    if group.copies is None or not group.formed:
        return np.zeros(len(step_s))
    (length,) = pipeline_lengths([alone := _without_copies(group)])
    return np.maximum(0.0, step_total(alone, length) - step_s)


def _busiest(group: PlanGroup, stage_times: Floats) -> dict[str, Floats]:
    """Return the busiest rank's pass seconds by part, times the number of micro-batches."""
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


def norm_and_ties(group: PlanGroup) -> Floats:
    """Seconds of the norm of gradients, and of the reduction of a table that two ranks hold."""
    size, local = group.parts[0].mesh.group(norm_axes(group.steps_overlap))
    sums = step_sums(group.setting.stack, ("world",))
    seconds = np.asarray(group.forms.collective("all-reduce", sums.logical_bytes, size, local))
    if group.tied_apart:
        seconds = seconds + group.seconds_of((_table_exchange(group),))
    return seconds


def _table_exchange(group: PlanGroup) -> Collective:
    """Return the exchange of the gradient of a table that the first and the last pipeline rank hold."""
    embed, head = group.stages[0][0], group.stages[-1][-1]
    first, last, stack = group.part_of(embed), group.part_of(head), group.setting.stack
    if group.layouts is not None and first is not last:
        ends = (first.index, group.placement[0]), (last.index, group.placement[-1])
        return table_exchange(group.layouts.parts, ends, group.layouts.table_shape, stack)
    return on_part(
        (tied_reduction(group.plan_elements[embed], first.sharding, first.shape, stack),), first.index
    )[0]


def optimizer(group: PlanGroup) -> Floats:
    """Return the slowest rank's optimizer step in seconds, passes that perturb parameters included."""
    if group.forward_only:
        return np.asarray(update(group) + PERTURBATIONS * perturbation(group).max(1))
    owned, stack, forms = group.held("optimizer"), group.setting.stack, group.stage_forms
    states = group.host_states(group.shape, group.mesh, axes=2)
    if states is not None:
        return np.asarray(step_seconds(owned, states, forms)).max(1)
    if not stack.optimizer.kind.of_matrices:
        return np.asarray(optimizer_seconds(owned, stack, forms)).max(1)
    seconds = optimizer_seconds(owned, stack, forms, group.held_matrices)
    of_kinds = [a + b for a, b in zip(_orthogonalisations(group), _base_changes(group), strict=True)]
    return np.asarray(seconds + group.per_rank(group.spread(of_kinds))).max(1)


def _base_changes(group: PlanGroup) -> list[Floats]:
    """Return the seconds in which adapters of each rank change the base of each kind of stage."""
    nothing, blocks = np.zeros(len(group.plans)), group.setting.model.blocks
    adapter = group.setting.workload.adapter
    if adapter is None or not adapter.of_each_replica:
        return [nothing for _ in group.stage_kinds]
    ranks, gathered = group.mesh.group(CHANGE_AXES)[0], group.sharding == "zero3"
    return [
        nothing
        + group.seconds_of(change_gather(elements[0], ranks, "stage"))
        + change_seconds((blocks[b] for b in kind), ranks, gathered, group.shape, group.forms)
        for kind, elements in zip(group.stage_kinds, group.kind_elements, strict=True)
    ]


def perturbation(group: PlanGroup) -> Floats:
    """Return the seconds in which every pipeline rank moves its parameters to another point: (n, P)."""
    states = group.host_states(group.shape, group.mesh, axes=2)
    held, stack = group.held("parameter"), group.setting.stack
    return np.asarray(perturbation_seconds(held, stack, group.stage_forms, states))


def update(group: PlanGroup) -> Floats:
    """Return the slowest rank's update behind forward passes in seconds: (n,)."""
    states = group.host_states(group.shape, group.mesh, axes=2)
    seconds = update_seconds(group.held("parameter"), group.setting.stack, group.stage_forms, states)
    return np.asarray(seconds).max(1)


def _orthogonalisations(group: PlanGroup) -> list[Floats]:
    """Return Muon's seconds for the matrices of each kind of stage."""
    stack = group.setting.stack
    seconds = (
        orthogonalisation_seconds(matrices, group.sharding, group.shape, stack, group.mesh, group.forms)
        for matrices in group.kind_matrices
    )
    return [group.per_plan(each) if np.ndim(each) == 0 else np.asarray(each) for each in seconds]
