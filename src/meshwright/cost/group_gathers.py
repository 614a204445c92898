"""What gathers of whole stages expose, as arrays: before the pipeline, on each rank, or after the optimizer."""

import numpy as np

from meshwright.cost.group import Floats, Group
from meshwright.cost.group_share import share_seconds
from meshwright.cost.group_states import played_with_states
from meshwright.cost.step import beside_gather


def gathers(group: Group, forward: Floats, message: Floats) -> tuple[Floats, Floats]:
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


def _gathers_alone(group: Group) -> bool:
    """Ranks begin their steps when they have ended the one before, and not because others have passed something on."""
    return group.steps_overlap and group.kind.chains == 1


def own_gathers(group: Group) -> Floats:
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
