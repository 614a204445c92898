"""The cost of every layer of a plan on its stage, with embedding and head, for partitioning.

A layer has its costs in every *mode*: a mode is something that a stage's layers may recompute.

Seconds are the prices of a block's passes by themselves; gathers and reductions during another block's pass are
left out. Bytes are the block's states, whole where they are gathered for a stage at once, and what a micro-batch in
flight keeps of it. A rank holds more: buffers of single blocks, workspace.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.memory.micro_batches_in_flight import in_flight, sufficient
from meshwright.cost.memory.rank_ledgers import rank_ledgers
from meshwright.cost.memory.zero_unsharded_buffers import ZeroBufferRule, stage_buffer_bytes
from meshwright.cost.operators.pass_prices import total
from meshwright.cost.pipeline_time.time_action_lists import equal_lists
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import Number
from meshwright.program.model_states.state_elements import STATE_KINDS
from meshwright.program.model_states.zero_sharding import SHARDED, state_bytes
from meshwright.program.pass_items import PassKind


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """Seconds and bytes of L layers on K stages over P ranks; embedding and head are layers, with it an encoder.

    ``forward``, ``backward``: (modes, L); ``states``: (L,). ``kept``: (modes, phases, L), of a micro-batch that waits
    for B or I, and that waits for W; ``in_flight``: (moments, phases, K). With balanced stages stage s has the layers
    ``stops[s]`` to ``stops[s + 1]`` and every rank holds ``held``: (modes, P). ``capacity``: bytes of a device that may
    be used.
    """

    placement: tuple[int, ...]
    forward: Floats
    backward: Floats
    states: Floats
    kept: Floats
    in_flight: Floats
    stops: tuple[int, ...]
    held: Floats
    capacity: float


def layer_costs(short: ShortPlan, setting: Setting, recomputes: Sequence[Recompute] = ()) -> LayerCosts:
    """Return the layer costs of a legal plan, in a mode for each of ``recomputes``, or in its own.

    How many micro-batches are in flight is that of the first mode: automatic schedules look at the times of stages.
    """
    plans = [short.model_copy(update={"recompute": word}) for word in recomputes or (short.recompute,)]
    modes = [group for plan in plans for _, group in pipeline_groups(from_shorts([plan]), setting)]
    group = modes[0]
    blocks = [block for stage in group.stages for block in stage]
    encoder = len(setting.model.encoder_blocks)
    seconds = [_seconds(of_mode, blocks) for of_mode in modes]
    kept = [[_each(blocks, of) for of in (g.prices.kept, g.prices.kept_for_weights)] for g in modes]
    held = [sum(rank_ledgers(g).values(), start=np.zeros((1, g.ranks)))[0] for g in modes]
    return LayerCosts(
        placement=group.placement,
        forward=_with_encoder(np.stack([of["F"] for of in seconds]), encoder),
        backward=_with_encoder(
            np.stack([np.sum([of[kind] for kind in of if kind != "F"], axis=0) for of in seconds]), encoder
        ),
        states=_with_encoder(
            _each(blocks, [_state_bytes(group, b) for b in range(len(setting.model.blocks))]), encoder
        ),
        kept=_with_encoder(np.array(kept), encoder),
        in_flight=_in_flight(group),
        stops=(0, *(np.cumsum([len(stage) for stage in group.stages]) - encoder).tolist()),
        held=np.stack(held),
        capacity=usable_device_bytes(setting.cluster),
    )


def _with_encoder(of_blocks: Floats, encoder: int) -> Floats:
    """Add what the blocks of an encoder cost to the embedding before them."""
    if not encoder:
        return of_blocks
    first = of_blocks[..., : 1 + encoder].sum(-1, keepdims=True)
    return np.concatenate((first, of_blocks[..., 1 + encoder :]), axis=-1)


def _seconds(group: PlanGroup, blocks: Sequence[int]) -> dict[PassKind, Floats]:
    """Seconds of every pass of every layer."""
    every = range(len(group.setting.model.blocks))
    return {
        kind: _each(blocks, [total(group.prices.block(b, kind)) for b in every]) for kind in group.pass_kinds
    }


def _each(blocks: Sequence[int], of_blocks: Sequence[Number]) -> Floats:
    """Return a number of every block, by layer."""
    return np.array([float(np.ravel(of_blocks[block])[0]) for block in blocks])


def _state_bytes(group: PlanGroup, block: int) -> Number:
    """Return the bytes of a block's states on a rank; gathered or unreduced states count in full."""
    rule, stack = ZeroBufferRule(group.sharding, group.mode.gather, group.mode.reduce), group.setting.stack
    elements = group.block_elements[block]
    whole = stage_buffer_bytes(rule, elements, stack)
    kinds = [kind for kind in STATE_KINDS if kind != "gradient" or not rule.gradients_are_whole]
    held = (
        state_bytes(elements, kind, kind in SHARDED[group.sharding], group.prices.local.shape, stack)
        for kind in kinds
    )
    return sum(held, start=whole)


def _in_flight(group: PlanGroup) -> Floats:
    """Micro-batches of every stage that its rank holds, by phase, at every moment that may be its peak."""
    stages = len(group.placement)
    ((count, times, _),) = equal_lists(
        sufficient(group.schedule, group.ranks, group.micro_batches), group.times
    )
    held = in_flight(group.schedule, group.ranks, count, tuple(range(stages)), times)
    result = np.zeros((max(map(len, held)), 2, stages))
    for rank, moments in enumerate(held):
        mine = np.flatnonzero(np.array(group.placement) == rank)
        rows = np.minimum(np.arange(len(result)), len(moments) - 1)
        result[:, :, mine] = moments.reshape(len(moments), 2, -1)[rows][:, :, mine]
    return result
