"""Memory of a group of plans: the ledger of each plan's worst pipeline rank, as arrays."""

from collections.abc import Sequence

import numpy as np

from meshwright.cost.closed_form.plan_group import Bools, Floats, Ints, PlanGroup
from meshwright.cost.memory.memory_breakdown import KEYS, fits_host_memory, workspace_bytes
from meshwright.cost.memory.micro_batches_in_flight import in_flight, peak_passes_on_host, sufficient
from meshwright.cost.memory.per_unit_buffers import unit_buffers
from meshwright.cost.memory.zero_unsharded_buffers import ZeroBufferRule, buffer_bytes
from meshwright.cost.pipeline_time.time_action_lists import equal_lists
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.state_elements import Elements, StateKind, bytes_per_element
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

KINDS: tuple[StateKind, StateKind] = ("parameter", "gradient")


def rank_ledgers(group: PlanGroup) -> dict[str, Floats]:
    """Every entry of the ledger for every plan and pipeline rank: (n, P)."""
    of_lists = {"activations": _activations(group)}
    if group.by_unit:
        of_lists["buffers"] = unit_buffers(group)
    return ledgers_without_lists(group) | of_lists


def ledgers_without_lists(group: PlanGroup) -> dict[str, Floats]:
    """Return the part of the ledger that does not depend on the schedule's lists, without unit buffers."""
    return {**_of_states(group), "working": _working(group)}


def held_states(group: PlanGroup) -> Floats:
    """Bytes of states, of buffers for their exchanges and of workspace, of every plan and pipeline rank: (n, P)."""
    return np.asarray(sum(_of_states(group).values(), start=np.zeros(1)))


def _of_states(group: PlanGroup) -> dict[str, Floats]:
    stack, mode = group.setting.stack, group.mode
    saved = group.steps_overlap and not stack.undoes_step_in_place
    copies = np.array([1 + (saved and rank + 1 < group.ranks) for rank in range(group.ranks)])
    rule = ZeroBufferRule(group.sharding, mode.gather, mode.reduce)
    gradients = bytes_per_element("gradient", stack) * group.held("gradient")
    return {
        "parameters": bytes_per_element("parameter", stack) * group.held("parameter"),
        "gradients": 0 * gradients if rule.gradients_are_whole else gradients,
        "optimizer": bytes_per_element("optimizer", stack) * group.held("optimizer") * copies,
        "buffers": 0 * gradients if rule.by_unit else _buffers(group, rule),
        "workspace": np.full(gradients.shape, np.floor(workspace_bytes())),
    }


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
        for rank, candidates in enumerate(held):
            result[rows, rank] = (sizes[rows] @ candidates[:, : sizes.shape[1]].T).max(1)
    return result


def host_bytes(group: PlanGroup) -> Floats:
    """Return the peak bytes that a device of every rank keeps on its host: (n, P)."""
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


def host_memory_suffices(group: PlanGroup) -> Bools:
    """Return the mask of plans whose offloaded activations fit the node's host memory."""
    node = group.setting.cluster.pool.node
    if group.copied is None or node.host_memory_bytes is None:
        return np.ones(len(group.plans), dtype=np.bool_)
    devices = min(node.devices, group.setting.cluster.devices)
    return np.asarray(fits_host_memory(devices * host_bytes(group).max(1), node.host_memory_bytes))


def _working(group: PlanGroup) -> Floats:
    extra = [group.per_plan(value) for value in group.prices.working]
    stages = group.spread([np.max([extra[b] for b in kind], axis=0) for kind in group.stage_kinds])
    return np.asarray(np.floor(stages[:, group.stages_at].max(1)))


def _buffers(group: PlanGroup, rule: ZeroBufferRule) -> Floats:
    if not rule.any:
        return np.zeros((len(group.plans), group.ranks))
    per_rank = []
    for rank in range(group.ranks):
        blocks = [b for stage in group.stages_at[:, rank] for b in group.stages[stage]]
        blocks += group.setting.model.vocabulary
        elements = [group.per_plan_elements(group.block_elements[b]) for b in dict.fromkeys(blocks)]
        sums, trained = (_counts([e.of(kind) for e in elements]) for kind in KINDS)
        where = sums.argmax(0), np.arange(len(group.plans))
        largest = Elements(sums[where], 0, 0, Elements(trained[where], 0, 0))
        whole = group.per_plan_elements(add(*(group.block_elements[b] for b in blocks)))
        value = buffer_bytes(rule, whole, largest, group.setting.stack)
        per_rank.append(np.floor(np.broadcast_to(np.asarray(value, dtype=np.float64), len(group.plans))))
    return np.stack(per_rank, 1)


def _counts(elements: Sequence[Elements]) -> Floats:
    """Elements of every block and plan: (blocks, n)."""
    return np.stack([np.asarray(e.dense, dtype=np.float64) + e.expert for e in elements])
