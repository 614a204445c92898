"""Seconds and bytes of single blocks under many plans, for searches that choose a plan layer by layer.

A block has the costs that it adds to a stage of equal blocks: gathers and reductions that overlap passes count with the
neighbours of such a stage. What a stage exposes of the exchanges of a step depends on the whole stage and is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.closed_form.group_parts import pass_exchanges, stage_gathers_at_once
from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_seconds, send_occupancy
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.memory.rank_ledgers import block_peak
from meshwright.cost.memory.zero_unsharded_buffers import stage_buffer_bytes
from meshwright.cost.operators.pass_prices import total
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import Number
from meshwright.program.lowering.pass_bodies import pass_body
from meshwright.program.model_states.data_parallel_collectives import add
from meshwright.program.model_states.state_elements import STATE_KINDS, bytes_per_element

Floats = NDArray[np.float64]
NEIGHBOURS = 3
"""Equal blocks in a row, of which the middle one has the costs of a block."""


@dataclass(frozen=True, eq=False)
class BlockCosts:
    """Costs of every block of a model under every plan: (n, blocks).

    ``passes_s``: all passes of a micro-batch; ``exchanges_s``: the gathers and reductions of a step; ``optimizer_s``.
    ``state_bytes``: states, whole where they are whole all along; ``kept_bytes``: what waits for a micro-batch's
    backward pass; ``peak_bytes``: working memory and buffers while the block's backward pass runs. ``sends_s``, (n,):
    how long the messages of a micro-batch keep a rank from computing, by stage.
    """

    passes_s: Floats
    exchanges_s: Floats
    optimizer_s: Floats
    state_bytes: Floats
    kept_bytes: Floats
    peak_bytes: Floats
    sends_s: Floats

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "BlockCosts":
        """Return the costs under some of the plans."""
        return BlockCosts(*(getattr(self, field.name)[rows] for field in fields(self)))


def block_costs(plans: PlanArrays, setting: Setting) -> BlockCosts:
    """Return the costs of every block of the setting's model under legal plans.

    Plans that differ only in the number of their stages per rank have equal costs, if any has several.
    """
    alike = {**plans.columns, "virtual_stages": np.minimum(plans.virtual_stages, 2)}
    equal = distinct([alike[name].astype(np.int64) for name in COLUMNS])
    different = plans.take(equal.first)
    shape = len(different), len(setting.model.blocks)
    found = BlockCosts(
        *(np.zeros(shape if field.name != "sends_s" else shape[:1]) for field in fields(BlockCosts))
    )
    for rows, group in pipeline_groups(different, setting):
        costs = _of_group(group)
        for field in fields(BlockCosts):
            getattr(found, field.name)[rows] = getattr(costs, field.name)
    return found.take(equal.inverse)


def _of_group(group: PlanGroup) -> BlockCosts:
    blocks = range(len(group.setting.model.blocks))
    return BlockCosts(
        passes_s=_each([_passes(group, block) for block in blocks]),
        exchanges_s=_each([_exchanges(group, block) for block in blocks]),
        optimizer_s=_optimizer(group),
        state_bytes=_each(_states(group)),
        kept_bytes=_each([group.per_plan(group.prices.kept[block]) for block in blocks]),
        peak_bytes=_each([block_peak(group, block) for block in blocks]),
        sends_s=_sends(group),
    )


def _each(of_blocks: Sequence[Floats]) -> Floats:
    return np.stack(of_blocks, 1)


def _passes(group: PlanGroup, block: int) -> Floats:
    """Return the seconds that one more equal block adds to the passes of a micro-batch: (n,)."""
    key = "one more block", block, group.pass_kinds
    return group.per_plan(group.made_once(key, lambda: _priced_passes(group, block)))


def _priced_passes(group: PlanGroup, block: int) -> Number:
    """As ``_passes``, a row per distinct shape."""
    (part,), prices = group.parts, group.prices
    if not part.mode.passes_exchange_states:
        return sum(total(prices.block(block, kind)) for kind in group.pass_kinds)
    units = pass_exchanges(
        group.parts, group.of_blocks, {block: group.block_elements[block]}, group.setting.stack
    )

    def seconds(count: int) -> Number:
        held = {0: add(*[group.block_elements[block]] * count)}
        together = stage_gathers_at_once(group.parts, held, group.setting.stack)
        bodies = (pass_body([block] * count, kind, units, together) for kind in group.pass_kinds)
        return sum(total(prices.body(body)) for body in bodies)

    return seconds(NEIGHBOURS) - seconds(NEIGHBOURS - 1)


def _sends(group: PlanGroup) -> Floats:
    kept = send_occupancy(group.split or group.chunks > 1, group.setting.stack.overlap_p2p, group.forms)
    ways = 1 if group.forward_only else 2
    return np.asarray(ways * kept * group.message_s)


def _exchanges(group: PlanGroup, block: int) -> Floats:
    (part,), elements = group.parts, group.plan_elements[block]
    gathers, reductions = group.gathers_of(part, elements), group.reductions_of(part, elements)
    return group.seconds_of((*gathers, *reductions))


def _optimizer(group: PlanGroup) -> Floats:
    stack, forms = group.setting.stack, group.stage_forms
    owned = _each(list(group.held_of_blocks("optimizer").values()))
    fixed = np.asarray(optimizer_seconds(np.zeros_like(owned), stack, forms))
    return np.asarray(optimizer_seconds(owned, stack, forms)) - fixed


def _states(group: PlanGroup) -> list[Floats]:
    """Bytes of states of every block, with states that are whole during the entire step."""
    (part,), stack = group.parts, group.setting.stack
    found = [np.zeros(len(group.plans)) for _ in group.setting.model.blocks]
    for kind in STATE_KINDS:
        if kind == "gradient" and part.rule.gradients_are_whole:
            continue
        for block, elements in group.held_of_blocks(kind).items():
            found[block] = found[block] + bytes_per_element(kind, stack) * elements
    return [
        held + stage_buffer_bytes(part.rule, group.plan_elements[block], stack)
        for block, held in enumerate(found)
    ]
