"""Traffic: the logical bytes that a step exchanges, by category, from a Program and in closed form.

For every pipeline rank one of its equal ranks is counted, and the pipeline ranks are added up: for category c
Σ over pipeline ranks Σ over the actions of the list Σ over the collectives of c ⌈logical bytes⌉. What ``logical``
means for each kind of collective is said in ``program/pass_items.py``; a message counts where it is sent, under pp.
Collectives over groups of one member exchange nothing. The closed form multiplies the traffic of each kind of pass
by the number of micro-batches and adds what surrounds the schedule, or what each unit exchanges as often as the lists
say (``cost/pipeline_time/exchange_times.py``); the two are equal to the byte (tests). Wire
bytes are not here: they depend on the algorithm (``wire_factors.py``).
"""

from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.bidirectional_reduction_times import mirrored_collectives
from meshwright.cost.closed_form.evaluate_plans import pipeline_groups
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.operators.pass_prices import CATEGORY, Mesh
from meshwright.cost.pipeline_time.exchange_times import unit_lists
from meshwright.cost.pipeline_time.time_action_lists import equal_lists
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.play.data_parallel_streams import EXCHANGES
from meshwright.program.lowering.optimizer_post_validation import norm_axes
from meshwright.program.lowering.plan_parts import p2p_bytes
from meshwright.program.lowering.step_collectives import (
    LISTED,
    NORM_BYTES,
    overlapped_kinds,
    step_sums,
    tied_reduction,
)
from meshwright.program.pass_items import Body, Collective, Item, PassKind, exchanges_of
from meshwright.program.program import Program
from meshwright.schedules.action import PASS_KINDS, SUM_SENDS, ActionLists

TRAFFIC = ("tp", "cp", "ep", "pp", "dp")
Counts = NDArray[np.int64]


def program_traffic(program: Program) -> dict[str, int]:
    """Logical bytes of one step by category, one rank of each pipeline rank, action by action."""
    result = dict.fromkeys(TRAFFIC, 0)

    @cache
    def of_pass(stage: int, kind: PassKind) -> Mapping[str, int]:
        return _tally(_collectives(program.bodies[stage, kind], program.block_items))

    for action in (action for actions in program.lists for action in actions):
        if action.kind in ("SEND_F", "SEND_B"):
            result["pp"] += program.parts.only.message_bytes
        elif action.kind in SUM_SENDS:
            result["pp"] += NORM_BYTES
        elif action.kind in PASS_KINDS:
            assert action.stage is not None
            _increase(result, of_pass(action.stage, action.kind))
        else:
            exchanged = program.collectives.get((action.stage, action.kind), ())
            _increase(result, _tally((1, collective) for collective in exchanged))
    return result


def array_traffic(plans: PlanArrays, setting: Setting) -> dict[str, Counts]:
    """Return the same for every plan of an array, in closed form. The plans are legal for the setting."""
    result = {name: np.zeros(len(plans), dtype=np.int64) for name in TRAFFIC}
    for rows, group in pipeline_groups(plans, setting):
        for name, value in _group_traffic(group).items():
            result[name][rows] = value
    return result


def _collectives(
    body: Body, items_of: Mapping[tuple[int, PassKind], tuple[Item, ...]]
) -> Iterable[tuple[int, Collective]]:
    """Every collective of a pass with the number of times that it runs."""
    for segment in body:
        yield from ((segment.count, collective) for collective in segment.overlapped)
        if segment.block is None:
            continue
        for item in items_of[segment.block, segment.kind]:
            yield from ((segment.count, collective) for collective in exchanges_of(item))


def _tally(counted: Iterable[tuple[int, Collective]]) -> dict[str, int]:
    result = dict.fromkeys(TRAFFIC, 0)
    for count, collective in counted:
        result[CATEGORY[collective.axes[-1]]] += count * int(np.ceil(collective.logical_bytes))
    return result


def _increase(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] += value


def _group_traffic(group: PlanGroup) -> dict[str, Counts]:
    """Return passes times micro-batches, messages, exchanges of shares, and exchanges outside the schedule."""
    result = {name: np.zeros(len(group.plans), dtype=np.int64) for name in TRAFFIC}
    repeats = np.bincount(group.kind_of)
    items_of = group.prices.items_of
    for kind in group.pass_kinds:
        for body, stages in zip(group.bodies(kind), repeats, strict=True):
            passes = _tallies(_collectives(body, items_of), group.prices.mesh)
            for name, value in passes.items():
                result[name] += stages * group.visits * group.per_plan(value).astype(np.int64)
    for name, value in _tallies(_around(group, repeats), group.mesh).items():
        result[name] += value
    exchanged = ((group.ranks, c) for collectives in group.share_exchanges.values() for c in collectives)
    for name, value in _tallies(exchanged, group.mesh).items():
        result[name] += group.micro_batches * value
    hidden = group.setting.model.architecture.hidden
    message = np.floor(p2p_bytes(hidden, group.shape, group.mode, group.setting.stack))
    ways = 1 if group.forward_only else 2
    result["pp"] += ways * int(group.crosses.sum()) * group.visits * np.asarray(message, dtype=np.int64)
    result["pp"] += 2 * (group.ranks - 1) * NORM_BYTES * group.steps_overlap
    return result


def _around(group: PlanGroup, repeats: Counts) -> Iterable[tuple[int | Counts, Collective]]:
    """Yield the collectives of a step outside the passes, with the number of ranks that run them."""
    stack, mode = group.setting.stack, group.mode
    gathered, reduced = _unit_counts(group) if group.by_unit else (repeats, repeats)
    (part,) = group.parts
    parts = [(held[0], gathered[kind], reduced[kind]) for kind, held in enumerate(group.kind_elements)]
    parts += [(group.share.elements, group.ranks, group.ranks)] if group.share else []
    for elements, gathers, reductions in parts:
        if mode.reduce in LISTED:
            yield from ((reductions, collective) for collective in group.reductions_of(part, elements))
        if group.sharding in ("zero1", "zero2") or mode.gather in LISTED:
            yield from ((gathers, collective) for collective in group.gathers_of(part, elements))
    for blocks, stages in zip(group.stage_kinds, repeats, strict=True):
        yield from ((int(stages), collective) for collective in mirrored_collectives(group, blocks))
    axes = norm_axes(group.steps_overlap)
    yield group.ranks, step_sums(stack, axes)
    if group.tied_apart:
        embedding = group.per_plan_elements(group.block_elements[group.stages[0][0]])
        yield 2, tied_reduction(embedding, group.sharding, group.shape, stack)


def _unit_counts(group: PlanGroup) -> tuple[Counts, Counts]:
    """Count the gathers and reductions of each kind of stage in a step: (kinds, n) each."""
    overlapped, stages = overlapped_kinds(group.setting.stack), len(group.stages)
    of_kind = np.eye(len(group.stage_kinds), dtype=np.int64)[group.kind_of].T
    found = np.zeros((2, len(of_kind), len(group.plans)), dtype=np.int64)
    for count, times, rows in equal_lists(group.micro_batches, group.times):
        lists = unit_lists(group.schedule, group.ranks, count, group.chunks, times, overlapped)
        for which, counts in enumerate(exchange_counts(lists, stages)):
            found[which][:, rows] = (of_kind @ counts)[:, None]
    return found[0], found[1]


def _tallies(counted: Iterable[tuple[int | Counts, Collective]], mesh: Mesh) -> dict[str, Counts]:
    """As ``_tally`` for arrays; groups of one member are masked out."""
    result: dict[str, Counts] = {}
    for count, collective in counted:
        name = CATEGORY[collective.axes[-1]]
        size = np.ceil(np.asarray(collective.logical_bytes, dtype=np.float64)).astype(np.int64)
        live = np.asarray(mesh.group(collective.axes)[0]) > 1
        result[name] = result.get(name, np.int64(0)) + count * np.where(live, size, 0)
    return result


def exchange_counts(lists: ActionLists, stages: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the gathers and the reductions of each stage in a step: (K,) each."""
    of_kinds = ([a.stage or 0 for actions in lists for a in actions if a.kind == kind] for kind in EXCHANGES)
    gathered, reduced = (np.bincount(of_kind, minlength=stages) for of_kind in of_kinds)
    return gathered, reduced
