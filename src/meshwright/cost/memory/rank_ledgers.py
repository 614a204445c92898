"""Memory of a group of plans: the ledger of each plan's worst pipeline rank, as arrays."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from meshwright.cost.closed_form.group_parts import elements_by_part
from meshwright.cost.closed_form.group_stages import Content
from meshwright.cost.closed_form.plan_group import Bools, Floats, Ints, PlanGroup
from meshwright.cost.memory.backward_peak import (
    Moment,
    StageBlocks,
    least_buffers,
    moments,
    worst_moment,
)
from meshwright.cost.memory.memory_breakdown import KEYS, fits_host_memory, workspace_bytes
from meshwright.cost.memory.micro_batches_in_flight import in_flight, peak_passes_on_host, sufficient
from meshwright.cost.memory.per_unit_buffers import unit_buffers
from meshwright.cost.memory.zero_unsharded_buffers import ZeroBufferRule, stage_buffer_bytes
from meshwright.cost.pipeline_time.time_action_lists import equal_lists
from meshwright.program.activation_bytes import logit_bytes
from meshwright.program.local_shape import Number
from meshwright.program.model_states import states_on_host
from meshwright.program.model_states.state_elements import NOT_PACKED, STATE_KINDS, bytes_per_element
from meshwright.program.model_states.zero_sharding import SHARDED, held_packed
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes
from meshwright.stack.state_types import SCALE_BYTES

NO_MOMENT = Moment(0.0, 0)


def rank_ledgers(group: PlanGroup) -> dict[str, Floats]:
    """Every entry of the ledger for every plan and pipeline rank: (n, P)."""
    fixed = ledgers_without_lists(group)
    of_lists = {"activations": _activations(group) + fixed["activations"]}
    if group.by_unit:
        of_lists["buffers"] = unit_buffers(group) + _buffers_of_host_states(group)
    return fixed | of_lists


def ledgers_without_lists(group: PlanGroup) -> dict[str, Floats]:
    """Return the part of the ledger that does not depend on the schedule's lists, without unit buffers.

    Activations are those that are free at the peak beyond what a block works in, so that they are 0 or below.
    """
    found, of_rank = _worst_moments(group)
    working, buffers, freed = (
        np.stack([np.floor(part) for part in parts], 1)[:, of_rank]
        for parts in zip(*((m.working, m.buffers, m.freed) for m in found), strict=True)
    )
    return {
        **_of_states(group),
        "working": np.maximum(working - freed, 0),
        "buffers": _whole_all_along(group) + buffers + _buffers_of_host_states(group),
        "activations": np.minimum(working - freed, 0),
    }


def least_held(group: PlanGroup) -> Floats:
    """Return a lower bound of states, workspace and buffers in bytes: (n, P).

    On ranks without the head the largest ``working`` adds to it.
    """
    rule, stack = _rules(group), group.setting.stack
    stages = [_stage(group, content, frees=False) for content in group.contents]
    of_kinds = [np.floor(group.per_plan(least_buffers(stage, rule, stack))) for stage in stages]
    passing = np.stack([_most(of_kinds, group.kind_of[at]) for at in group.stages_at.T], 1)
    states = sum(_of_states(group).values(), start=_buffers_of_host_states(group))
    return np.asarray(states + _whole_all_along(group) + (0 if group.by_unit else passing))


def _most(of_kinds: Sequence[Floats], kinds: Ints) -> Floats:
    return np.asarray(np.max([of_kinds[kind] for kind in kinds], axis=0))


def _rules(group: PlanGroup) -> Callable[[int], ZeroBufferRule]:
    """Return the rule of each block's part."""
    of_parts = [part.rule for part in group.parts]
    return lambda block: of_parts[group.of_blocks[block]]


def _of_states(group: PlanGroup) -> dict[str, Floats]:
    stack, states = group.setting.stack, group.host_states(group.shape, group.mesh, axes=2)
    saved = group.steps_overlap and not stack.undoes_step_in_place
    copies = np.array([1 + (saved and rank + 1 < group.ranks) for rank in range(group.ranks)])
    held = {kind: group.held(kind) for kind in STATE_KINDS}
    if states is not None:
        held = {kind: elements - states.on_host(kind, elements) for kind, elements in held.items()}
    gradients = bytes_per_element("gradient", stack) * held["gradient"]
    whole = [part.rule.gradients_are_whole for part in group.parts]
    if all(whole):
        gradients = np.zeros_like(gradients)
    elif any(whole):  # these are buffers
        kept = group.held_of_blocks("gradient")
        cut = {block: each * (not whole[group.of_blocks[block]]) for block, each in kept.items()}
        gradients = bytes_per_element("gradient", stack) * group.on_ranks(cut)
    return {
        "parameters": bytes_per_element("parameter", stack) * held["parameter"] + _packed_bytes(group),
        "gradients": gradients,
        "optimizer": copies
        * (
            bytes_per_element("optimizer", stack) * held["optimizer"]
            + stack.matrix_optimizer_bytes * group.held_matrices
            + _scale_bytes(group)
        ),
        "workspace": np.full(gradients.shape, np.floor(workspace_bytes(group.setting.cluster))),
    }


def _packed_bytes(group: PlanGroup) -> Floats | float:
    """Bytes of frozen parameters with a type of their own: (n, P), or 0."""
    if all(elements.packed is NOT_PACKED for elements in group.block_elements.values()):
        return 0.0
    (part,), nothing = group.parts, np.zeros(len(group.plans))
    sharded = "parameter" in SHARDED[part.sharding]
    return group.on_ranks(
        {
            index: nothing + held_packed(each, sharded, part.shape).bytes
            for index, each in group.plan_elements.items()
        }
    )


def _scale_bytes(group: PlanGroup) -> Floats | float:
    """Bytes of the scales of narrow moments, one for each parameter: (P,), or 0."""
    scales = group.setting.stack.scaled_moments
    if not scales or group.host_shares.optimizer == 1:
        return 0.0
    trained = {block: elements.of("optimizer") for block, elements in group.optimizer_elements.items()}
    tensors = {block: elements.dense_tensors + elements.expert_tensors for block, elements in trained.items()}
    of_stages = np.array([sum(tensors[block] for block in blocks) for blocks in group.stages])
    shared = sum(tensors[block] for block in group.setting.model.vocabulary)
    return np.asarray(SCALE_BYTES * scales * (of_stages[group.stages_at].sum(0) + shared), dtype=np.float64)


def worst_ledger(group: PlanGroup) -> dict[str, Floats]:
    """Return the ledger of the rank that holds most: (n,)."""
    ledgers = rank_ledgers(group)
    worst = sum((ledgers[key] for key in KEYS), start=np.zeros(1)).argmax(1)
    rows = np.arange(len(worst))
    return {key: ledgers[key][rows, worst] for key in KEYS}


def _activations(group: PlanGroup) -> Floats:
    return activations(group, group.schedule, saved_activation_bytes(group), group.micro_batches, group.times)


def saved_activation_bytes(group: PlanGroup) -> Floats:
    """Bytes of all that waits for another pass, by what ``in_flight`` counts: (n, columns).

    What is on the host is counted with what waits, and taken off again.
    """
    waiting = [] if group.share is None else [group.share.kept_bytes[:, None]]
    for_weights = group.kept_for_weights if group.split else np.zeros_like(group.kept)
    weights = [for_weights, *(np.zeros_like(one) for one in waiting)]
    away = [] if group.copied is None else [*weights, -group.kept_on_host]
    return np.concatenate(
        [group.kept, *waiting, *(away or ([group.kept_for_weights] if group.split else []))], 1
    )


def activations(
    group: PlanGroup,
    schedule: ScheduleChoice,
    sizes: Floats,
    micro_batches: Ints,
    times: Sequence[StageTimes] | None,
) -> Floats:
    """Peak bytes on every rank of plans with the group's stages, a row of ``sizes`` each: (n, P)."""
    copied = group.copied
    enough = sufficient(schedule, group.ranks, micro_batches, copied)
    result = np.zeros((len(sizes), group.ranks))
    for count, of_times, rows in equal_lists(enough, times):
        held = in_flight(schedule, group.ranks, count, tuple(group.kind_of.tolist()), of_times, copied)
        counts = np.concatenate(held)[:, : sizes.shape[1]]
        first = np.cumsum([0, *map(len, held[:-1])])
        result[rows] = np.maximum.reduceat(sizes[rows] @ counts.T, first, axis=1)
    return result


def host_bytes(group: PlanGroup) -> Floats:
    """Return the peak bytes that a device of every rank keeps on its host: (n, P)."""
    return _state_bytes_on_host(group) + _activations_on_host(group)


def _activations_on_host(group: PlanGroup) -> Floats:
    result, copied = np.zeros((len(group.plans), group.ranks)), group.copied
    if copied is None:
        return result
    enough = sufficient(group.schedule, group.ranks, group.micro_batches, copied)
    for count, times, rows in equal_lists(enough, group.times):
        held = peak_passes_on_host(
            group.schedule, group.ranks, count, tuple(group.kind_of.tolist()), times, copied
        )
        for rank, candidates in enumerate(held):
            result[rows, rank] = (group.kept_on_host[rows] @ candidates.T).max(1)
    return result


def _state_bytes_on_host(group: PlanGroup) -> Floats:
    """Return the bytes of model states that a device of every rank has on its host: (n, P)."""
    states = group.host_states(group.shape, group.mesh, axes=2)
    if states is None:
        return np.zeros((len(group.plans), group.ranks))
    optimizer, parameter = (
        states.on_host("optimizer", group.held("optimizer")),
        states.on_host("parameter", group.held("parameter")),
    )
    return np.asarray(states_on_host.host_bytes(group.setting.stack, optimizer, parameter), dtype=np.float64)


def _buffers_of_host_states(group: PlanGroup) -> Floats:
    """Return the bytes of gradients that leave and of parameters that come, on the device of every rank: (n, P)."""
    states, blocks = group.host_states(group.shape, group.mesh), group.plan_elements
    if states is None:
        return np.zeros((len(group.plans), group.ranks))
    per_rank = []
    for rank in range(group.ranks):
        held = {b for stage in group.stages_at[:, rank] for b in group.stages[stage]}
        own = [blocks[b] for b in sorted(held | set(group.setting.model.vocabulary))]
        per_rank.append(_per_plan(states.buffer_bytes(own), group))
    return np.stack(per_rank, 1)


def host_memory_suffices(group: PlanGroup) -> Bools:
    """Return the mask of plans whose offloaded activations and states fit the node's host memory."""
    cluster = group.setting.cluster
    pool = cluster.pool
    capacity = pool.node.host_memory_bytes
    nothing = group.copied is None and not group.host_shares.some
    if nothing or capacity is None:
        return np.ones(len(group.plans), dtype=np.bool_)
    return np.asarray(fits_host_memory(pool.devices_of_host * host_bytes(group).max(1), cluster, capacity))


def _whole_all_along(group: PlanGroup) -> Floats:
    """Bytes of gathered stages and of gradients that are reduced once a step: (n, P)."""
    rules, stack = [part.rule for part in group.parts], group.setting.stack
    if group.by_unit or not any(rule.parameters_are_whole or rule.gradients_are_whole for rule in rules):
        return np.zeros((len(group.plans), group.ranks))
    different, of_rank = _kinds_of_ranks(group)
    of_kinds = []
    for kinds in different:
        blocks = [b for kind in kinds for b in group.stage_kinds[kind]]
        blocks += group.setting.model.vocabulary
        of_parts = elements_by_part(blocks, group.of_blocks, group.block_elements)
        whole = (
            stage_buffer_bytes(rules[part], group.per_plan_elements(each), stack)
            for part, each in of_parts.items()
        )
        of_kinds.append(np.sum([np.floor(_per_plan(size, group)) for size in whole], axis=0))
    return np.stack(of_kinds, 1)[:, of_rank]


def _kinds_of_ranks(group: PlanGroup) -> tuple[list[tuple[int, ...]], Ints]:
    """Return the different lists of kinds of stages that ranks have, and which of them each rank has."""
    kinds = [tuple(at) for at in group.kind_of[group.stages_at.T].tolist()]
    different = list(dict.fromkeys(kinds))
    return different, np.array([different.index(some) for some in kinds])


def _worst_moments(group: PlanGroup) -> tuple[list[Moment], Ints]:
    """Return the moments that hold most beyond kept activations, fields are (n,), and which of them each rank has."""
    different, of_rank = _kinds_of_ranks(group)
    sets = list(dict.fromkeys(tuple(dict.fromkeys(kinds)) for kinds in different))
    frees, contents = _frees_with_head(group), group.contents
    worst = [_worst_moment(group, tuple(contents[kind] for kind in some), frees) for some in sets]
    return worst, np.array([sets.index(tuple(dict.fromkeys(kinds))) for kinds in different])[of_rank]


def _worst_moment(group: PlanGroup, contents: tuple[Content, ...], frees: Bools) -> Moment:
    """Return the worst moment of stages, whose blocks free what they kept in some of the plans: fields are (n,)."""

    def of(free: bool) -> Moment:
        key = "moment", contents, free
        return _of_plans(group, group.made_once(key, partial(_priced_moment, group, contents, free)))

    if frees.all() or not frees.any():
        return of(bool(frees[0]))
    kept, freed = of(False), of(True)
    return Moment(
        np.where(frees, freed.working, kept.working),
        np.where(frees, freed.buffers, kept.buffers),
        np.where(frees, freed.freed, kept.freed),
    )


def _of_plans(group: PlanGroup, moment: Moment) -> Moment:
    return Moment(
        group.per_plan(moment.working), group.per_plan(moment.buffers), group.per_plan(moment.freed)
    )


def _priced_moment(group: PlanGroup, contents: tuple[Content, ...], frees: bool) -> Moment:
    """Return the worst moment of stages, a row per distinct shape."""
    rule, stack = _rules(group), group.setting.stack
    stages = [_stage(group, content, frees=frees) for content in contents]
    if group.share is not None:
        stages.append(_stage_blocks(group, group.setting.model.vocabulary, None, frees=False))
    return worst_moment([NO_MOMENT, *(m for stage in stages for m in moments(stage, rule, stack))])


def block_peak(group: PlanGroup, block: int) -> Floats:
    """Return the most bytes of working memory and buffers that a block adds to a stage of equal blocks: (n,)."""
    found = group.made_once(("block peak", block), partial(_priced_block_peak, group, block))
    return np.floor(group.per_plan(found.working)) + np.floor(group.per_plan(found.buffers))


def _priced_block_peak(group: PlanGroup, block: int) -> Moment:
    """Return the moment at which a stage of equal blocks holds most, a row per distinct shape."""
    head = block if block == group.setting.model.head_block else None
    stage = _stage_blocks(group, (block,) * (1 if head is not None else 3), head, frees=False)
    return worst_moment([NO_MOMENT, *moments(stage, _rules(group), group.setting.stack)])


def _frees_with_head(group: PlanGroup) -> Bools:
    """Return the mask of plans whose blocks free what they kept on the rank with the head: nothing is on a host."""
    if len(group.stages_at) > 1 or group.split or group.share is not None:
        return np.zeros(len(group.plans), dtype=np.bool_)
    return np.asarray(_activations_on_host(group)[:, -1] == 0)


def _stage(group: PlanGroup, content: Content, *, frees: bool) -> StageBlocks:
    """Return the blocks of a stage. With the head, and one stage a rank, they may free what they kept."""
    (blocks, _), head = content, group.setting.model.chain[-1][0]
    ends = group.setting.model.head.kind == "head" and head in blocks
    return _stage_blocks(group, blocks, head if ends else None, frees=frees)


def _stage_blocks(group: PlanGroup, blocks: Sequence[int], head: int | None, *, frees: bool) -> StageBlocks:
    """Return facts of a stage's blocks, a row per distinct shape."""
    prices, model = group.prices, group.setting.model
    local, counted = prices.local_of(model.chain[-1][0]), frees and head is not None
    return StageBlocks(
        blocks=blocks,
        elements=group.block_elements.__getitem__,
        kept=lambda block: prices.kept[block] if counted else 0,
        working=prices.working.__getitem__,
        logits=logit_bytes(model.head, local.shape, local.mode, local.stack) if counted else 0,
        head=head,
        tied=group.shared[0] if head is not None and group.shared else None,
    )


def _per_plan(value: Number, group: PlanGroup) -> Floats:
    """Spread a scalar over plans."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), len(group.plans))
