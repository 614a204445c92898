"""Exposed time of whole-stage gathers, as arrays: before the pipeline, on each rank, or after the optimizer."""

import numpy as np

from meshwright.cost.closed_form.exposed_exchanges_replayed import plays_state_exchanges
from meshwright.cost.closed_form.overlap_and_optimizer import during_gather
from meshwright.cost.closed_form.pipeline_vocabulary_passes import share_seconds
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.program.lowering.step_collectives import gathers_stages


def exposed_gathers(group: PlanGroup, forward: Floats, message: Floats) -> tuple[Floats, Floats]:
    """Return the seconds that whole-stage gathers add before the pipeline's end, and after the optimizer."""
    nothing = np.zeros(len(message))
    if group.by_unit or not any(gathers_stages(part) for part in group.parts):
        return nothing, nothing
    seconds, early = group.seconds(group.gathers_of), group.gathered_early
    late = nothing
    if not early.all():
        late = group.per_rank(seconds * ~early).max(1)
        if group.share:
            late = late + share_seconds(group, group.share, group.gathers_of)
    if not early.any() or plays_state_exchanges(group) or _gathers_alone(group):
        return nothing, late  # played, or a matter of each rank
    overlap = group.setting.stack.overlap_parameter_gather
    return _first_passes(group, forward, message, seconds * early, overlap), late


def _first_passes(
    group: PlanGroup, forward: Floats, message: Floats, seconds: Floats, overlap: bool
) -> Floats:
    """Return the delay in seconds that gathers cause to the first micro-batch's pass over all stages."""
    arrival = np.zeros(len(message))
    ideal = np.zeros(len(message))
    whole = group.per_rank(seconds)
    in_turn = np.cumsum(seconds[:, group.stages_at], 1)
    for stage in range(group.ranks):
        turn = group.stages_at[:, stage].tolist().index(stage)
        gathered = in_turn[:, turn, stage] if overlap else whole[:, stage]
        start = arrival if overlap else np.maximum(arrival, gathered)
        left = np.maximum(0.0, gathered - start)
        end = start + (during_gather(forward[:, stage], left, group.forms) if overlap else forward[:, stage])
        arrival = end + message
        ideal = ideal + forward[:, stage] + message
    return arrival - ideal


def _gathers_alone(group: PlanGroup) -> bool:
    """Ranks begin their steps when they have ended the one before, and not because others have passed something on."""
    return group.steps_overlap and group.kind.chains == 1


def rank_gather_delays(group: PlanGroup) -> Floats:
    """By how much gathers of whole stages delay each rank, where steps overlap and nobody waits meanwhile: (n, P)."""
    overlap = group.setting.stack.overlap_parameter_gather
    first = any(map(gathers_stages, group.parts)) and group.gathered_early.any()
    if not (_gathers_alone(group) and first):
        return np.zeros((len(group.plans), group.ranks))
    seconds = group.seconds(group.gathers_of)
    if not overlap:
        return group.per_rank(seconds)
    turn = group.stages_at[0]
    forward = group.forward_s[:, turn]
    return np.asarray(during_gather(forward, seconds[:, turn], group.stage_forms)) - forward
