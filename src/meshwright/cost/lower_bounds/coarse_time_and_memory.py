"""Cheap lower bounds of time and memory for very many plans at once, before any of them is priced.

Most plans of a search take the same passes, or hold the same states, as others. So each bound is computed once for all
plans that are equal in what it depends on, and looked up for the rest. A step is no shorter than

* the work of the mean rank: M·Σ (F + B) of all blocks / P, for the busiest rank has no less. Where passes exchange
  states, G a micro-batch, these go on beside computation. An exchange of g seconds beside a pass of f takes
  max(f + s·min(f, g), g) with the slow-down s; below that lies max(f + s·g/(1 + s), g), which sums to the bound
  M·max(Σ (F + B) + s·G/(1 + s), G) / P;
* the work of any rank: M·Σ (F + B) of its own stages; where stages lie in a loop and backward passes are whole, behind
  the forward passes of the stages before its first one and ahead of their backward passes. Before its first backward
  pass a micro-batch has gone forward through all stages and back to the rank's last one, and the rank has run no more
  forward passes than it may hold: what is left of that time it idles, where this is longer. Of ranks that have equal
  layers the last one idles longest. Steps that overlap gain nothing there: the first rank's list ends with a backward
  pass, behind which its next step begins.

A device holds no less than a rank's states with the buffers of their exchanges, workspace, what one pass works in
(without the head: its logits may be free by then), and activations: as many forward passes as its schedule has in
flight there where it declares that, else one of each of its stages; of these the smallest counts.

To both the exchanges of states add what ``state_exchanges.py`` says. Left out are messages, norm and optimizer, and all
else that happens inside a pipeline. Neither bound is above what ``evaluate`` finds (tests).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import (
    ModeGroup,
    mode_groups,
    pipeline_groups,
)
from meshwright.cost.lower_bounds.context_parallel_pruning import BYTES, SECONDS, undominated_in_costs
from meshwright.cost.lower_bounds.representative_ranks import representative_ranks
from meshwright.cost.lower_bounds.state_exchanges import StateExchangeBounds
from meshwright.cost.memory.rank_ledgers import least_held
from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import pass_kinds, setting_hardware_times
from meshwright.plans.arrays.distinct_rows import Distinct, distinct, map_distinct_rows
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices import searched_choices
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import Number
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.in_flight_bounds import in_flight_bounds
from meshwright.schedules.pipeline import looped_placement

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CoarseBounds:
    """Bytes on the worst device and seconds of a step at least, of every plan: (n,).

    Seconds are found when they are asked for: where nothing fits nobody asks. They are infinite for plans that hold
    more bytes than are usable.
    """

    total_bytes: Floats
    seconds: Callable[[], Floats]

    @cached_property
    def step_s(self) -> Floats:
        """Seconds of a step."""
        return self.seconds()


@dataclass(frozen=True)
class _OfPasses:
    """Bounds of base plans, which have ``inverse`` of so many ``keys``; rows of these, and what prices them.

    Only base plans that ``may_fit`` have times.
    """

    total_bytes: Floats
    may_fit: Bools
    inverse: Ints
    keys: int
    quick: Iterable["_Priced"]

    @cached_property
    def times(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Seconds of each key: of the mean rank and of any rank, at most of the first stage's F and B."""
        work, own = np.full((2, self.keys), np.inf)
        forward, backward = np.zeros((2, self.keys))
        asked = np.zeros(self.keys, dtype=np.bool_)
        asked[self.inverse[self.may_fit]] = True
        for of_forms, priced in self.quick:
            chosen = np.flatnonzero(asked[of_forms])
            if not len(chosen):
                continue
            rows, same = of_forms[chosen], priced.take(chosen)
            work[rows], own[rows] = np.minimum(work[rows], same.work_s), np.minimum(own[rows], same.own_s)
            first = _first_stage_s(same)
            forward[rows], backward[rows] = (
                np.maximum(forward[rows], first[0]),
                np.maximum(backward[rows], first[1]),
            )
        return work, own, forward, backward


class VariantBounds:
    """Bounds of base plans, and of variants of them: what runs again, the order, cut sequences, what hosts hold.

    ``contexts``: forms of context parallelism that each base plan may have, by code; bounds hold for all of them then.
    (codes, n), and passes of the same base plans depend on nothing else. None: plans have the form that they say.
    ``usable_bytes``: of plans that hold more nobody wants to know the seconds.
    """

    def __init__(
        self,
        base: PlanArrays,
        setting: Setting,
        contexts: Bools | None = None,
        usable_bytes: float = np.inf,
    ) -> None:
        self.setting, self.base, self.contexts, self.usable_bytes = setting, base, contexts, usable_bytes
        self.passes = _equal_passes(base)
        self.states = _equal_states(base)
        keys = base.take(self.passes.first)
        self.exchanges = StateExchangeBounds(base, setting, self.states)
        self._best: dict[int, tuple[_Forms, ...]] = {}
        self._last: tuple[object, _OfPasses] | None = None
        self.keys = keys.with_columns(
            {name: np.zeros_like(keys.columns[name]) for name in ("sharding", "gather")}
        )

    @cached_property
    def ranks(self) -> "_Ranks":
        """Return the representative ranks of each kind of pipeline."""
        return _Ranks(self.base, self.setting)

    @cached_property
    def held(self) -> Floats:
        """Bytes of states, buffers and workspace for each kind of states, on each rank that stands for others."""
        plans = self.base.take(self.states.first)
        held = np.zeros((len(plans), self.ranks.count))
        for rows, group in pipeline_groups(plans, self.setting):
            ranks = self.ranks.of(self.ranks.pipelines(plans.take(rows[:1])), "ranks")[0]
            held[rows] = least_held(group)[:, ranks]
        return held

    def of(self, variant: PlanArrays) -> CoarseBounds:
        """Bounds of plans that are the base plans but for these choices, the same for all of them.

        Variants that only differ in their order are best asked for one after the other.
        """
        found = self._without_exchanges(variant)
        return CoarseBounds(found.total_bytes, partial(self._seconds, found, int(variant.order[0])))

    def _seconds(self, found: _OfPasses, order: int) -> Floats:
        """Seconds with the exchanges of states."""
        work, own, forward, backward = found.times
        slowdown, seconds = self.slowdown, np.full(len(self.base), np.inf)
        rows = np.flatnonzero(found.may_fit)
        seconds[rows] = np.maximum(work, own)[self.passes.inverse[rows]]
        inside, overlapped = self.exchanges.in_passes(order, found.may_fit)
        slowed = work[self.passes.inverse[inside]] + slowdown / (1 + slowdown) * overlapped
        seconds[inside] = np.maximum(seconds[inside], np.maximum(slowed, overlapped))
        around = self.exchanges.around(order, found.may_fit)
        keys = self.passes.inverse[around.rows]
        seconds[around.rows] += self.exchanges.exposed(around, forward[keys], backward[keys])
        return seconds

    @cached_property
    def slowdown(self) -> float:
        """Slow-down of passes that overlap with exchanges."""
        return setting_hardware_times(self.setting).constants["overlap_slowdown"]

    def _without_exchanges(self, variant: PlanArrays) -> _OfPasses:
        """Bounds without exchanges of states; where tp and cp come first they are the same in any order."""
        first = self.passes.first
        own = {name: variant.columns[name][first] for name in searched_choices()}
        codes = {name: int(column.max(initial=0)) for name, column in own.items()}
        if variant.tp_and_cp_inner:
            del codes["order"]
        if self._last is None or self._last[0] != codes:
            self._last = codes, self._of_passes(self.keys.with_columns(own))
        return self._last[1]

    def _of_passes(self, keys: PlanArrays) -> _OfPasses:
        """Bytes with the leanest forms; seconds with the quickest ones are left to be asked for."""
        kept, quick = np.full((len(keys), self.ranks.count), np.inf), list[Iterable[_Priced]]()
        for forms in self._forms(keys):
            priced: Iterable[_Priced] = self._priced(keys, forms)
            if forms.lean:
                priced = list(priced)
                for rows, same in priced:
                    kept[rows] = np.minimum(kept[rows], same.kept)
            if forms.quick:
                quick.append(priced)
        total_bytes = np.zeros(len(self.base))
        for rank in range(self.ranks.count):
            of_rank = self.held[:, rank][self.states.inverse] + kept[:, rank][self.passes.inverse]
            np.maximum(total_bytes, of_rank, out=total_bytes)
        may_fit = total_bytes <= self.usable_bytes
        return _OfPasses(total_bytes, may_fit, self.passes.inverse, len(keys), chain(*quick))

    def _priced(self, keys: PlanArrays, forms: "_Forms") -> Iterator["_Priced"]:
        """Rows of keys with some forms, and what they are priced by."""
        plans = keys.take(forms.rows).with_columns({"context": forms.codes})
        for same in _groups(plans, self.setting, self.ranks):
            yield forms.rows[same.rows], same

    def _forms(self, keys: PlanArrays) -> "tuple[_Forms, ...]":
        """Rows of keys with those of their forms that may take least time, hold least, or both."""
        if self.contexts is None:
            return (_Forms(rows=np.arange(len(keys)), codes=keys.context, quick=True, lean=True),)
        order = 0 if keys.tp_and_cp_inner else int(keys.order.max(initial=0))
        if order not in self._best:
            legal = self.contexts[:, self.passes.first]
            quick, lean = (
                undominated_in_costs(keys, legal, self.setting, costs) for costs in (SECONDS, BYTES)
            )
            self._best[order] = (
                _marked(quick & lean, quick=True, lean=True),
                _marked(quick & ~lean, quick=True, lean=False),
                _marked(lean & ~quick, quick=False, lean=True),
            )
        return self._best[order]


@dataclass(frozen=True, kw_only=True)
class _Forms:
    """Forms of context parallelism by their ``codes``, one of each row; they may be the quickest, or the leanest."""

    rows: Ints
    codes: Ints
    quick: bool
    lean: bool


def _marked(forms: Bools, *, quick: bool, lean: bool) -> _Forms:
    """Those of a mask: (codes, n)."""
    rows, codes = np.nonzero(forms.T)
    return _Forms(rows=rows, codes=codes, quick=quick, lean=lean)


def _equal_passes(plans: PlanArrays) -> Distinct:
    """Plans whose stages, operators and numbers of micro-batches are equal, whatever runs again."""
    replicas = plans.dp_replicate * plans.dp_shard
    pipeline = [plans.schedule, plans.pp, plans.virtual_stages, plans.micro_batch * replicas]
    shape = [plans.cp, plans.tp, plans.ep, plans.etp, plans.micro_batch]
    if not plans.tp_and_cp_inner:
        shape += [plans.dp_shard]  # where their ranks lie depends on it
    return distinct([*pipeline, *shape])


def _equal_states(plans: PlanArrays) -> Distinct:
    """Plans whose ranks hold equal states."""
    mesh = [plans.tp, plans.cp, plans.ep, plans.etp, plans.dp_shard, plans.dp_replicate]
    return distinct([plans.schedule, plans.pp, plans.virtual_stages, *mesh, plans.sharding, plans.gather])


class _Ranks:
    """Ranks that stand for all, by the kind of a pipeline: its schedule, its ranks, its stages a rank."""

    def __init__(self, plans: PlanArrays, setting: Setting) -> None:
        columns = [plans.schedule, plans.pp, plans.virtual_stages]
        rows = distinct(columns).first
        self.codes = {
            key: code
            for code, key in enumerate(zip(*(column[rows].tolist() for column in columns), strict=True))
        }
        found = [
            representative_ranks(plans.schedules[schedule], ranks, chunks, setting.model)
            for schedule, ranks, chunks in self.codes
        ]
        self.count = max((len(one.ranks) for one in found), default=1)
        self.table = [one.padded(self.count) for one in found]

        self._fields: dict[str, Ints] = {}
        self._in_flight: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._most_in_flight: dict[tuple[int, ...], tuple[int, ...]] = {}

    def in_flight(
        self, choice: ScheduleChoice, schedule: int, ranks: int, chunks: int, micro_batches: int
    ) -> tuple[int, ...]:
        """Forward passes of stages that each rank of a pipeline holds at some moment at least."""
        key = schedule, ranks, chunks, micro_batches
        if key not in self._in_flight:
            of_ranks = self.table[self.codes[schedule, ranks, chunks]].ranks.tolist()
            declared = [choice.declared_in_flight(rank, ranks, micro_batches, chunks) for rank in of_ranks]
            self._in_flight[key] = tuple(chunks if count is None else count for count in declared)
        return self._in_flight[key]

    def most_in_flight(
        self, choice: ScheduleChoice, schedule: int, ranks: int, chunks: int, micro_batches: int
    ) -> tuple[int, ...]:
        """Forward passes of stages that the last ranks of their kinds hold at most."""
        key = schedule, ranks, chunks, micro_batches
        if key not in self._most_in_flight:
            every = in_flight_bounds(choice, ranks, micro_batches, chunks)
            last = self.table[self.codes[schedule, ranks, chunks]].last.tolist()
            self._most_in_flight[key] = tuple(every[rank] for rank in last)
        return self._most_in_flight[key]

    def pipelines(self, plans: PlanArrays) -> Ints:
        """Return the kind of every plan's pipeline: (n,)."""
        columns = [plans.schedule, plans.pp, plans.virtual_stages]
        return map_distinct_rows(lambda *key: self.codes[key], columns)

    def of(self, pipelines: Ints, what: str) -> Ints:
        """Return a field of ``RepresentativeRanks`` for kinds of pipelines: (n, K), or (blocks, n, K)."""
        if what not in self._fields:
            table = np.stack([getattr(one, what) for one in self.table])
            self._fields[what] = table if table.ndim == 2 else np.moveaxis(table, 2, 0)
        return self._fields[what][..., pipelines, :]


def _groups(plans: PlanArrays, setting: Setting, ranks: _Ranks) -> Iterator["_Same"]:
    for group in mode_groups(plans, setting):
        for rows in distinct([plans.schedule[group.rows]]).groups():
            chosen = group.rows[rows]
            yield _Same(group, chosen, plans.take(chosen), group.inverse[rows], ranks)


@dataclass(frozen=True)
class _Same:
    """Plans of one mode and one schedule, by their ``rows``; ``inverse`` are their rows of the group's prices."""

    group: ModeGroup
    rows: Ints
    plans: PlanArrays
    inverse: Ints
    ranks: _Ranks

    def take(self, which: Ints) -> "_Same":
        """Return some of the plans."""
        return replace(self, rows=self.rows[which], plans=self.plans.take(which), inverse=self.inverse[which])

    @property
    def choice(self) -> ScheduleChoice:
        """The schedule."""
        return self.plans.schedules[int(self.plans.schedule[0])]

    def counts(self, what: str) -> Ints:
        """Return a field of the ranks that stand for others in every plan's pipeline: (n, K), or (blocks, n, K)."""
        return self.ranks.of(self._pipelines, what)

    @cached_property
    def _pipelines(self) -> Ints:
        return self.ranks.pipelines(self.plans)

    @cached_property
    def micro_batches(self) -> Ints:
        return self.plans.micro_batches(self.group.setting.workload.computed_sequences)

    @cached_property
    def block_seconds(self) -> dict[int, Floats]:
        """Seconds of all passes of a micro-batch over each block."""
        prices, kinds = self.group.prices, pass_kinds(self.choice, self.group.setting.stack)
        return {
            block: self.per_plan(sum(total(prices.block(block, kind)) for kind in kinds))
            for block, _ in self.group.setting.model.chain
        }

    @cached_property
    def forward_seconds(self) -> dict[int, Floats]:
        """Seconds of the forward pass of a micro-batch over each block."""
        prices = self.group.prices
        return {
            block: self.per_plan(total(prices.block(block, "F")))
            for block, _ in self.group.setting.model.chain
        }

    @cached_property
    def backward_seconds(self) -> dict[int, Floats]:
        """Seconds of the backward passes of a micro-batch over each block."""
        return {block: seconds - self.forward_seconds[block] for block, seconds in self.block_seconds.items()}

    @property
    def work_s(self) -> Floats:
        """Seconds of all passes of the mean rank."""
        chain = self.group.setting.model.chain
        once = sum((repeat * self.block_seconds[block] for block, repeat in chain), start=np.zeros(1))
        return np.asarray(self.micro_batches * once / (self.plans.pp * self.choice.kind.chains))

    @property
    def own_s(self) -> Floats:
        """Seconds that a rank needs for its own passes and for the way to them and back; the slowest rank's."""
        kind, counts = self.choice.kind, self.counts
        if kind.chains > 1 or self.choice.form:
            return np.zeros(len(self.plans))
        own = self.micro_batches[:, None] * _sums(counts("own"), self.block_seconds)
        if not kind.split and kind.placement is looped_placement:
            own = own + _idle_s(self) + _sums(counts("before"), self.backward_seconds)
        return np.asarray(own.max(1))

    @property
    def kept(self) -> Floats:
        """Bytes of activations, and of what one pass works in, on each rank that stands for others at least: (n, K)."""
        if self.choice.kind.chains > 1 or self.choice.form:
            return np.zeros((len(self.plans), self.ranks.count))
        prices, blocks = self.group.prices, range(len(self.group.setting.model.blocks))
        kept = {block: self.per_plan(prices.kept[block]) for block in blocks}
        at_work = np.zeros((len(self.plans), self.ranks.count))
        own = self.counts("own") > 0
        head = own[self.group.setting.model.chain[-1][0]]
        for block, there in enumerate(own & ~head):
            np.maximum(at_work, there * self.per_plan(prices.working[block])[:, None], out=at_work)
        in_flight = self._passes_held(self.ranks.in_flight)
        waiting = in_flight * np.floor(_sums(self.counts("least"), kept))
        return np.asarray(np.where(self.plans.leaves_devices[:, None], 0.0, waiting) + np.floor(at_work))

    def per_plan(self, value: Number) -> Floats:
        """Return the value with a row for every plan."""
        array = np.asarray(value, dtype=np.float64)
        return array[self.inverse] if array.ndim else np.full(len(self.plans), float(array))

    def most_in_flight(self) -> Ints:
        """Forward passes of stages that the last ranks of their kinds hold at most: (n, K)."""
        return self._passes_held(self.ranks.most_in_flight)

    def _passes_held(self, held: Callable[..., tuple[int, ...]]) -> Ints:
        of = partial(held, self.choice, int(self.plans.schedule[0]))
        return map_distinct_rows(of, [self.plans.pp, self.plans.virtual_stages, self.micro_batches])


def _first_stage_s(same: _Same) -> tuple[Floats, Floats]:
    """Return the seconds of the forward and the backward passes of a micro-batch over the first stage."""
    counts = same.counts("first")[:, :, :1]
    passes = same.forward_seconds, same.backward_seconds
    forward, backward = (np.asarray(_sums(counts, seconds))[:, 0] for seconds in passes)
    return forward, backward


def _idle_s(same: _Same) -> Floats:
    """Return the seconds that the last ranks of their kinds idle before their first backward passes: (n, K)."""
    counts, forward = same.counts, same.forward_seconds
    chain = same.group.setting.model.chain
    there = sum((repeat * forward[block] for block, repeat in chain), start=np.zeros(1))
    back = _sums(counts("behind"), same.backward_seconds)
    before = _sums(counts("before"), forward)
    if same.group.setting.stack.optimizer.forward_only:
        return np.asarray(before)
    meanwhile = same.most_in_flight() * _sums(counts("most"), forward)
    return np.maximum(before, there[:, None] + back - meanwhile)


_Priced = tuple[Ints, _Same]
"""Rows, and the plans there."""


def _sums(counts: Ints, values: dict[int, Floats]) -> Floats:
    """Return Σ over blocks of counts (blocks, n, K) times values (n,): (n, K)."""
    return sum((counts[block] * value[:, None] for block, value in values.items()), start=np.zeros(1))
