"""Buffers of plans with ``gather: per-unit``: the most that a rank holds unsharded at once, as arrays.

Which moment holds most depends on the sizes of the stages; stages of equal content count together, so that few
candidates remain, as for activations (``micro_batches_in_flight.py``).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.memory.zero_unsharded_buffers import unit_buffer_bytes, whole_parameter_bytes
from meshwright.cost.pipeline_time.exchange_times import unit_lists
from meshwright.cost.pipeline_time.time_action_lists import equal_lists, stages_of_ranks
from meshwright.plans.arrays.distinct_rows import unique_rows
from meshwright.program.lowering.step_collectives import overlapped_kinds
from meshwright.program.model_states.peak_unsharded_stages import peak_unsharded_stages
from meshwright.program.pass_items import Collective
from meshwright.schedules.action import Kind
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import StageTimes

Counts = NDArray[np.int64]


def unit_buffers(group: PlanGroup) -> Floats:
    """Bytes of every plan and pipeline rank: (n, P)."""
    stack, overlapped = group.setting.stack, overlapped_kinds(group.setting.stack)
    (part,), stages = group.parts, [of_kind[0] for of_kind in group.kind_elements]
    parameters = [whole_parameter_bytes(stage) for stage in stages]
    gradients = [unit_buffer_bytes(0, stage.of("gradient").count, stack) for stage in stages]
    sizes = np.stack([np.asarray(size, dtype=np.float64) for size in parameters + gradients], 1)
    shared = np.stack(
        [
            _is_shared(group, of(part, stage))
            for of in (group.gathers_of, group.reductions_of)
            for stage in stages
        ],
        1,
    )
    kinds = tuple(group.kind_of.tolist())
    result = np.zeros((len(group.plans), group.ranks))
    for count, times, rows in equal_lists(group.micro_batches, group.times):
        whole = unsharded_stage_counts(group.schedule, group.ranks, count, kinds, times, overlapped)
        for rank, candidates in enumerate(whole):
            mine = np.bincount(group.kind_of[group.stages_at[:, rank]], minlength=len(group.stage_kinds))
            comes_and_goes = (np.where(shared, sizes, 0)[rows] @ candidates.T).max(1)
            stays = np.where(shared, 0, sizes)[rows] @ np.tile(mine, 2)
            result[rows, rank] = np.floor(comes_and_goes + stays)
    return result


def _is_shared(group: PlanGroup, collectives: Sequence[Collective]) -> NDArray[np.bool_]:
    """Return the mask of plans in which an exchange has partners."""
    sizes = [np.asarray(group.mesh.group(collective.axes)[0]) for collective in collectives]
    return np.asarray(np.max(np.broadcast_arrays(np.ones(len(group.plans)), *sizes), axis=0) > 1)


@lru_cache(maxsize=1024)
def unsharded_stage_counts(
    schedule: ScheduleChoice,
    ranks: int,
    micro_batches: int,
    kinds: tuple[int, ...],
    times: StageTimes | None,
    overlapped: frozenset[Kind],
) -> tuple[Counts, ...]:
    """Per rank an array (candidates, 2·kinds of stages): how many of each kind have whole parameters, whole gradients.

    ``kinds`` has the kind of every stage.
    """
    chunks = len(kinds) // ranks
    one_hot = np.eye(max(kinds) + 1, dtype=np.int64)[list(kinds)]
    at = stages_of_ranks(schedule, ranks, chunks)
    lists = unit_lists(schedule, ranks, micro_batches, chunks, times, overlapped)
    result = []
    for rank, actions in enumerate(lists):
        whole = np.array(peak_unsharded_stages(actions, at[:, rank].tolist(), overlapped))
        of_kinds = whole @ one_hot[at[:, rank]]
        result.append(unique_rows(of_kinds.reshape(len(whole), -1)))
    return tuple(result)
