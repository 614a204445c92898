"""Sum, round and step recorded gradients in one process, in the order and at the points of the plan.

What ranks add to their gradients is recorded before it is rounded (``recorded_states.py``). This reference adds it up
as the plan says: in the gradient's type micro-batch by micro-batch, in the type of the wire rank by rank, with the sum
itself in fp64. AdamW is written out in fp64 on each rank's spans, whose new states are rounded to their types. With
``wide`` nothing is rounded: then the sums are the gradients of the whole batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import cast

import torch

from meshwright.model.named_tensors import TOKEN_TABLE, is_matrix
from meshwright.program.pass_items import Collective
from meshwright.program.program import Program
from meshwright.runtime.comm.process_groups import groups_of
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.gradient_buffers import Addition
from meshwright.runtime.state.optimizer import CLIP_EPSILON
from meshwright.runtime.state.shard_pieces import Piece, whole_tensors
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.state.stored_states import SCALED
from meshwright.runtime.state.update_rules.update_rule import StepValues
from meshwright.runtime.verify.recorded_states import PARAMETER, Span, StateRecord, UnitRecord
from meshwright.runtime.verify.reference_rules import (
    REFERENCE_RULES,
    State,
    hidden_matrices,
    muon_change,
    muon_momentum,
)
from meshwright.workload.optimizers.optimizer_kind import FIRST

TP = ("tp",)
WIDE = torch.float64
Gradients = dict[str, torch.Tensor]
"""Flat gradients of a unit's tensors."""
SpanKey = tuple[int, str, int]
"""Rank, unit, index of the span."""


@dataclass
class StateReference:
    """The states of all ranks, in fp64 with values of their types.

    ``states`` are (rank, unit, index of the span) → the parameter and its moments.
    """

    program: Program
    records: Sequence[StateRecord]
    precision: Precision
    options: StepOptions
    whole_shapes: Mapping[str, tuple[int, ...]]
    states: dict[SpanKey, State] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.matrices = hidden_matrices(self.program)
        optimizer, scale = self.program.stack.optimizer, self.program.stack.muon_scale
        self.values, others = (
            StepValues(0, self.options.lr, cast(float, options["weight_decay"]), options)
            for options in (self.options.for_optimizer(of, scale) for of in (optimizer, optimizer.others))
        )
        self.others = optimizer.others.name, others

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Begin with these whole parameters, and moments of zero."""
        optimizer = self.program.stack.optimizer
        for rank, unit, number, span in self._spans():
            flat = _local(tensors[span.name].to(WIDE), span, self.records[rank].units[unit].shapes[span.name])
            part = _rounded(flat, self.precision.master)
            keys = (optimizer if span.name in self.matrices else optimizer.others).own_moments
            self.states[rank, unit, number] = {PARAMETER: part} | {
                key: torch.zeros_like(part) for key in keys
            }

    def gradients(self, step: int, *, wide: bool = False) -> list[dict[str, Gradients]]:
        """Return every rank's reduced gradients, by unit: those of all its tensors, of which it owns spans."""
        adding, wire = (WIDE, WIDE) if wide else (self.precision.gradient, self.precision.reduce)
        sums = [
            {
                name: _reductions(unit, unit.additions[step], adding, wire)
                for name, unit in record.units.items()
            }
            for record in self.records
        ]
        reduced: list[dict[str, Gradients]] = [{} for _ in self.records]
        for name, of_rank in _ranks_by_unit(self.records).items():
            for number in range(len(sums[of_rank[0]][name])):
                part = {rank: sums[rank][name][number][1] for rank in of_rank}
                for item in sums[of_rank[0]][name][number][0]:
                    self._sum(part, item, self.records[of_rank[0]].units[name], adding, wire)
                for rank, found in part.items():
                    before = reduced[rank].get(name)
                    reduced[rank][name] = _added(before, found, adding) if before else found
        self._sum_over_pipeline(reduced, adding, wire)
        return reduced

    def whole(self, reduced: Sequence[Mapping[str, Gradients]]) -> dict[str, torch.Tensor]:
        """Put the reduced gradients of all ranks together."""
        pieces: dict[object, Piece] = {}
        for rank, unit, _, span in self._spans():
            shape = self.records[rank].units[unit].shapes[span.name]
            values = reduced[rank][unit][span.name][span.start : span.stop]
            piece = Piece(span.name, self.whole_shapes[span.name], shape, span.cuts, span.start, values)
            pieces.setdefault((span.name, span.cuts, span.start, span.stop), piece)
        return whole_tensors(pieces.values())

    def step(self, reduced: Sequence[Mapping[str, Gradients]]) -> float:
        """Take the optimizer's step on every rank's spans; return the norm of all gradients."""
        norm = sqrt(sum(float(tensor.square().sum()) for tensor in self.whole(reduced).values()))
        limit = self.options.clip
        clip = 1.0 if limit is None else min(1.0, limit / (norm + CLIP_EPSILON))
        self.steps += 1
        changed: dict[tuple[int, str, str], list[State]] = {}
        taken: list[tuple[SpanKey, Span, torch.Tensor]] = []
        for rank, unit, number, span in self._spans():
            gradient = reduced[rank][unit][span.name][span.start : span.stop] * clip
            state = self.states[rank, unit, number]
            if span.name in self.matrices:
                state[FIRST], direction = muon_momentum(state[FIRST], gradient, self.values.options)
                taken.append(((rank, unit, number), span, direction))
            else:
                optimizer, values = self.others
                decays = is_matrix(span.name, self.whole_shapes[span.name])
                values = replace(values, number=self.steps, weight_decay=values.weight_decay * decays)
                state |= REFERENCE_RULES[optimizer](state, gradient, values)
            changed.setdefault((rank, unit, span.name), []).append(state)
        self._step_matrices(taken)
        for states in changed.values():
            for state in states:
                state[PARAMETER] = _rounded(state[PARAMETER], self.precision.master)
            for key in states[0].keys() - {PARAMETER}:
                _round_moments(states, key, getattr(self.precision, key))
        return norm

    def _step_matrices(self, taken: Sequence[tuple[SpanKey, Span, torch.Tensor]]) -> None:
        """Orthogonalise whole matrices, and subtract each span's part of them."""
        pieces: dict[object, Piece] = {}
        for (rank, unit, _), span, direction in taken:
            shape = self.records[rank].units[unit].shapes[span.name]
            piece = Piece(span.name, self.whole_shapes[span.name], shape, span.cuts, span.start, direction)
            pieces.setdefault((span.name, span.cuts, span.start, span.stop), piece)
        changes = {
            name: muon_change(whole, self.matrices[name], self.program.parts.only.shape, self.values.options)
            for name, whole in whole_tensors(pieces.values()).items()
        }
        kept = 1 - self.values.lr * self.values.weight_decay
        for (rank, unit, number), span, _ in taken:
            change = _local(changes[span.name], span, self.records[rank].units[unit].shapes[span.name])
            state = self.states[rank, unit, number]
            state[PARAMETER] = kept * state[PARAMETER] - self.values.lr * change

    def _spans(self) -> list[tuple[int, str, int, Span]]:
        return [
            (rank, name, number, span)
            for rank, record in enumerate(self.records)
            for name, unit in record.units.items()
            for number, span in enumerate(unit.spans)
        ]

    def _sum(
        self,
        part: dict[int, Gradients],
        item: Collective,
        unit: UnitRecord,
        adding: torch.dtype,
        wire: torch.dtype,
    ) -> None:
        """Sum gradients over every group of an item."""
        names = unit.summed if item.axes == TP else frozenset(unit.shapes)
        for ranks in groups_of(self.program, item.axes):
            if ranks[0] in part:
                _sum_over(ranks, part, names, item.kind, adding, wire)

    def _sum_over_pipeline(
        self, reduced: list[dict[str, Gradients]], adding: torch.dtype, wire: torch.dtype
    ) -> None:
        """Sum the gradients of mirrored stages, and of a table of two stages."""
        for (_, kind), items in self.program.collectives.items():
            if kind not in ("REDUCE_MIRRORED", "REDUCE_TIED"):
                continue
            for ranks in groups_of(self.program, items[0].axes):
                for names in zip(*(self._units_with(rank, kind) for rank in ranks), strict=True):
                    part = {r: reduced[r].pop(name) for r, name in zip(ranks, names, strict=True)}
                    which = frozenset({TOKEN_TABLE}) if kind == "REDUCE_TIED" else frozenset(part[ranks[0]])
                    _sum_over(ranks, part, which, "all-reduce", adding, wire)
                    for rank, name in zip(ranks, names, strict=True):
                        reduced[rank][name] = part[rank]
            if kind == "REDUCE_MIRRORED":
                return  # all its stages at once

    def _units_with(self, rank: int, kind: str) -> list[str]:
        """Return the units of a rank that a sum over the pipeline is about, in the order of their parameters."""
        units = self.records[rank].units
        if kind == "REDUCE_TIED":
            return [name for name, unit in units.items() if TOKEN_TABLE in unit.shapes]
        return sorted(units, key=lambda name: sorted(units[name].shapes))


def _local(whole: torch.Tensor, span: Span, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a span of a whole tensor's part on a rank, whose padded shape is given."""
    local = whole
    for dim, start, stop, rows in span.cuts:
        index = torch.arange(start, stop) if rows is None else torch.tensor(rows)
        local = local.index_select(dim, index)
    flat = torch.zeros(shape, dtype=WIDE)
    flat[tuple(slice(0, n) for n in local.shape)] = local
    return flat.flatten()[span.start : span.stop]


def _ranks_by_unit(records: Sequence[StateRecord]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, record in enumerate(records):
        for name in record.units:
            found.setdefault(name, []).append(rank)
    return found


def _reductions(
    unit: UnitRecord, additions: Sequence[Addition], dtype: torch.dtype, wire: torch.dtype
) -> list[tuple[tuple[Collective, ...], Gradients]]:
    """Return the reductions of a step, each with the additions before it, rounded one after the other."""
    found: list[tuple[tuple[Collective, ...], Gradients]] = []
    sums = _zeros(unit)
    for name, values, items in additions:
        if values is None:
            found.append((items, sums))
            sums = _zeros(unit)
        else:
            added = values.to(WIDE, copy=True)
            for start, stop in unit.sent.get(name, ()):
                added[start:stop] = _rounded(added[start:stop], wire)
            sums[name] = _rounded(sums[name] + added, dtype)
    return found


def _zeros(unit: UnitRecord) -> Gradients:
    return {name: torch.zeros(shape, dtype=WIDE).flatten() for name, shape in unit.shapes.items()}


def _added(before: Gradients, found: Gradients, dtype: torch.dtype) -> Gradients:
    return {name: _rounded(before[name] + found[name], dtype) for name in before}


def _sum_over(
    ranks: Sequence[int],
    part: dict[int, Gradients],
    names: frozenset[str],
    kind: str,
    adding: torch.dtype,
    wire: torch.dtype,
) -> None:
    for name in names:
        total = sum((_rounded(part[rank][name], wire) for rank in ranks), start=torch.zeros((), dtype=WIDE))
        if kind == "all-reduce":
            total = _rounded(total, wire)
        for rank in ranks:
            part[rank] = part[rank] | {name: _rounded(total, adding)}


def _round_moments(states: Sequence[State], name: str, dtype: torch.dtype) -> None:
    """Round a moment of a piece; fp16 and fp8 with the scale of its largest element."""
    scale = 1.0
    if dtype in SCALED:
        largest = max(float(state[name].abs().max()) for state in states)
        scale = torch.tensor(largest / torch.finfo(dtype).max, dtype=torch.float32).item()
        scale = max(scale, torch.finfo(torch.float32).smallest_normal)
    for state in states:
        state[name] = _rounded(state[name] / scale, dtype) * scale


def _rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).to(WIDE)
