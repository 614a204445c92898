"""Search plans whose layers differ in layout or recomputation: strategies, their order, and the cut into stages.

Pipelines are searched in the order of their estimates, until one is above the best step found. In each, every stage
takes the quickest strategies that fit (``search/layers``), under costs of single blocks. What comes of it is written as
a plan and priced by closed forms; where its memory is another than the blocks' together, the stages' capacities are
corrected and the search of the pipeline is repeated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.layout_changes import change_seconds, layout_part
from meshwright.cost.closed_form.layout_groups import layout_group
from meshwright.cost.closed_form.step_parts import pipeline_lengths, step_total
from meshwright.cost.memory.memory_breakdown import KEYS, usable_device_bytes, workspace_bytes
from meshwright.cost.memory.rank_ledgers import rank_ledgers
from meshwright.errors import PlanError
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.layer_assignment import balanced_counts
from meshwright.plans.resolve import resolve_with
from meshwright.plans.setting import Setting
from meshwright.search.layers.stage_partition import StageAssignment, assigned_chunks, assigned_stages
from meshwright.search.layers.strategy_assignment import ChainLabels, LayerCosts
from meshwright.verbs.plan.layers.long_plans import long_plan_of
from meshwright.verbs.plan.layers.pipeline_strategies import (
    PipelineStrategies,
    chain_kinds,
    pipeline_strategies,
    worthwhile,
)
from meshwright.verbs.plan.search_space import Scope

Floats = NDArray[np.float64]
MOST_PIPELINES = 16
"""Pipelines that are searched."""
CLOSE = 1.02
"""Pipelines whose estimate is above so many times the best step are not searched."""
CORRECTIONS = 4
NEGLIGIBLE = 1e-3
"""A correction of a rank's room that is not worth another search, as a part of it."""
EXPOSED = (1.0, 0.0)
"""Shares of the exchanges of a step that count as exposed."""


@dataclass(frozen=True)
class RangedPlan:
    """A plan whose layers differ, its step in seconds and the bytes of its fullest device."""

    plan: LongPlan
    step_s: float
    total_bytes: float


@dataclass(frozen=True)
class RangeSearch:
    """The plans found, the quickest first; ``bound_s``: no plan by ranges takes less, by the costs of single blocks."""

    plans: tuple[RangedPlan, ...]
    bound_s: float
    pipelines: int
    searched: int

    @property
    def gap(self) -> float:
        """By which part of its time the best plan may be slower than another one."""
        return max(0.0, 1 - self.bound_s / self.plans[0].step_s) if self.plans else 0.0


Pipeline = tuple[int, ...]
"""Pipeline ranks, stages per rank, and sequences that move together."""


def pipeline_of(plans: PlanArrays, row: int) -> Pipeline:
    """Return the pipeline of one of some plans."""
    together = plans.dp_replicate * plans.dp_shard * plans.micro_batch
    return int(plans.pp[row]), int(plans.virtual_stages[row]), int(together[row])


def search_ranges(
    scope: Scope,
    header: ShortPlan,
    setting: Setting,
    known_s: float = inf,
    near: Sequence[Pipeline] = (),
) -> RangeSearch:
    """Search plans whose layers differ; those slower than ``known_s`` are not looked for.

    ``near``: pipelines that are searched first, and whatever their estimates are.
    """
    found, best, searched = dict[str, RangedPlan](), known_s, 0
    every = pipeline_strategies(scope, setting)
    pipelines = sorted(every, key=lambda one: pipeline_of(one.plans, 0) not in near)
    for pipeline in pipelines:
        first = pipeline_of(pipeline.plans, 0) in near
        if searched == MOST_PIPELINES or (pipeline.estimate_s >= best * CLOSE and not first):
            break
        if pipeline.bound_s >= best:
            continue
        searched += 1
        one = _PipelineSearch(worthwhile(pipeline, setting), header, setting)
        for plan in one.plans():
            found.setdefault(plan.plan.model_dump_json(), plan)
            best = min(best, plan.step_s)
    ranked = sorted(found.values(), key=lambda one: (one.step_s, one.total_bytes))
    bound_s = min((one.bound_s for one in pipelines), default=inf)
    return RangeSearch(tuple(ranked), bound_s, len(pipelines), searched)


class _PipelineSearch:
    """The search of one pipeline."""

    def __init__(self, pipeline: PipelineStrategies, header: ShortPlan, setting: Setting) -> None:
        self.pipeline, self.header, self.setting = pipeline, header, setting
        self.kinds = chain_kinds(setting)
        self.room = usable_device_bytes(setting.cluster) - float(workspace_bytes(setting.cluster))
        self.change = pipeline.micro_batches * self._changes()
        self.seen: set[tuple[int, ...]] = set()

    def _changes(self) -> Floats:
        plans, meshes = self.pipeline.plans, self.pipeline.meshes
        of_mesh = [int(np.flatnonzero(meshes == number)[0]) for number in range(meshes.max() + 1)]
        longs = [
            expand(short_plan(plans, row, self.header), self.setting.model.architecture) for row in of_mesh
        ]
        seconds = change_seconds([layout_part(long, self.setting) for long in longs], self.setting)
        return np.asarray(seconds[np.ix_(meshes, meshes)])

    def plans(self) -> Iterator[RangedPlan]:
        """Yield the plans that fit, one or more for each part of the exchanges that counts."""
        costs = self.pipeline.costs
        passes = self.pipeline.micro_batches * costs.passes_s + costs.optimizer_s
        matter = costs.exchanges_s.max() > NEGLIGIBLE * passes.min()
        for exposed in EXPOSED if matter else EXPOSED[:1]:
            for allowed in self._allowed():
                yield from self._corrected(np.where(allowed, passes + exposed * costs.exchanges_s, inf))

    def _allowed(self) -> Iterator[NDArray[np.bool_]]:
        """Yield masks of the strategies that blocks may have together: (S, blocks).

        Where stages of other ranks lie between those of a rank, a change of mesh would be one at every border: there
        all layers have one mesh. So they have in one of the searches of every pipeline.
        """
        setting, layouts, meshes = self.setting, self.pipeline.layouts, self.pipeline.meshes
        shape = self.pipeline.costs.passes_s.shape
        further = setting.model.architecture.next_token_layers > 0
        if "layout" not in setting.stack.varies_by_layer or further:
            yield from (np.broadcast_to(mask[:, None], shape) for mask in _each(layouts))
            return
        if self.pipeline.ranks > 1:
            yield from (np.broadcast_to(mask[:, None], shape) for mask in _each(meshes))
            if self.pipeline.chunks == 1:
                yield np.ones(shape, dtype=np.bool_)
            return
        if not setting.model.tied_head:
            yield np.ones(shape, dtype=np.bool_)
            return
        for mask in _each(layouts):  # one rank holds the table of both ends, in one layout
            allowed = np.ones(shape, dtype=np.bool_)
            allowed[:, [self.kinds[0], self.kinds[-1]]] = mask[:, None]
            yield allowed

    def _corrected(self, seconds: Floats) -> Iterator[RangedPlan]:
        """Yield plans that fit, of ever better estimates of what pipeline ranks hold beyond their blocks."""
        cuts = (False, True) if self.pipeline.chunks == 1 and self.pipeline.ranks > 1 else (True,)
        chains = _Chains(lambda held: self._costs(held, seconds))
        for balanced in cuts:
            rooms = np.full(self.pipeline.ranks, self.room)
            for _ in range(CORRECTIONS):
                cut = self._assigned(chains, rooms, balanced=balanced)
                if cut is None or cut.strategies in self.seen:
                    break
                self.seen.add(cut.strategies)
                plan, held = self._priced(cut)
                if plan is None:
                    break
                if plan.total_bytes <= self.usable:
                    yield plan
                before, rooms = rooms, self.room - (held - np.array(cut.held))
                if abs(rooms - before).max() <= NEGLIGIBLE * self.room:
                    break

    def _assigned(self, known: "_Chains", rooms: Floats, *, balanced: bool) -> StageAssignment | None:
        """Return the best strategies of all layers and the cut; None where nothing fits."""
        chains = [known.of(self._held_on(rank), room) for rank, room in enumerate(rooms.tolist())]
        if self.pipeline.chunks > 1:
            return assigned_chunks(self.kinds, chains, self._balanced(), len(self.setting.model.blocks))
        return assigned_stages(self.kinds, chains, self._balanced() if balanced else None)

    @property
    def usable(self) -> float:
        """Bytes of a device that a plan may use."""
        return usable_device_bytes(self.setting.cluster)

    def _held_on(self, rank: int) -> tuple[int, ...]:
        """Return the micro-batches in flight on each stage of a rank."""
        return tuple(self.pipeline.in_flight[rank :: self.pipeline.ranks].tolist())

    def _costs(self, held: tuple[int, ...], seconds: Floats) -> LayerCosts:
        """Return the costs of layers on a rank with so much in flight, a row for each block of each of its stages."""
        costs = self.pipeline.costs
        size = [costs.state_bytes + count * costs.kept_bytes for count in held]
        of_chunks = [np.concatenate([seconds] * len(held), 1), np.concatenate(size, 1)]
        peak = np.concatenate([costs.peak_bytes] * len(held), 1)
        return LayerCosts(of_chunks[0].T, of_chunks[1].T, peak.T, self.change)

    def _balanced(self) -> tuple[int, ...]:
        stages = self.pipeline.ranks * self.pipeline.chunks
        counts = list(balanced_counts(len(self.kinds) - 2, stages))
        counts[0] += 1
        counts[-1] += 1
        return (0, *np.cumsum(counts).tolist())

    def _priced(self, cut: StageAssignment) -> tuple[RangedPlan | None, Floats]:
        """Return the plan of a cut, None if it is illegal, and what each pipeline rank holds besides workspace."""
        plan = long_plan_of(self.pipeline, self.header, self.setting, cut.strategies, cut.stops)
        try:
            nouns = self.setting.model, self.setting.cluster, self.setting.stack
            resolve_with(plan, *nouns, stack_binds=True)
        except PlanError:
            return None, np.zeros(self.pipeline.ranks)
        group = layout_group(plan, self.setting)
        ledgers = rank_ledgers(group)
        held = np.sum([ledgers[key][0] for key in KEYS], axis=0)
        (length,) = pipeline_lengths([group])
        found = RangedPlan(plan, float(step_total(group, length)[0]), float(held.max()))
        return found, held - ledgers["workspace"][0]


class _Chains:
    """Labels of layers on ranks by the micro-batches in flight and the room, which searches of a pipeline share."""

    def __init__(self, costs: Callable[[tuple[int, ...]], LayerCosts]) -> None:
        self.costs = lru_cache(maxsize=None)(costs)
        self.known: dict[tuple[tuple[int, ...], float], ChainLabels] = {}

    def of(self, held: tuple[int, ...], room: float) -> ChainLabels:
        """Return the labels of a rank with so much in flight and so much room."""
        if (held, room) not in self.known:
            self.known[held, room] = ChainLabels(self.costs(held), room)
        return self.known[held, room]


def _each(numbers: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Yield the mask of each number."""
    yield from (numbers == number for number in range(int(numbers.max()) + 1))


def uses_ranges(plan: LongPlan) -> bool:
    """Return true if layers of a plan differ in layout or recomputation."""
    recomputes = {rule.recompute for key, rule in plan.layers.items() if key not in ("embed", "head")}
    return len(plan.layouts) > 1 or len(recomputes) > 1
