"""Add the changes of all data-parallel ranks' adapters to the base after a step: W += Σ_k (B′A′ − BA)_k.

Each stage gathers A and B of all ranks from before and after the step (``program/model_states/base_changes.py``). Every
rank then multiplies [B′ −B]·[A′; A] for the rows of W of which it holds a part, in the dtype of statistics, and rounds
the sum once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from meshwright.model.operators.operator_types import LowRank
from meshwright.program.model_states.base_changes import (
    BEFORE_AND_AFTER,
    CHANGE_BYTES,
    change_gathers_of,
    replicas_of,
)
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.state.shard_pieces import Piece
from meshwright.runtime.state.sharded_unit import Unit


class OwnPair(NamedTuple):
    """The names of a changed matrix's A and B."""

    down: str
    up: str


class ChangedSpan(NamedTuple):
    """A part of a changed matrix: its unit, the slice of the flat matrix, and that of the unit's elements here."""

    unit: FrozenUnit
    tensor: Tensor
    of: slice
    here: slice


Adapters = Mapping[int, torch.Tensor]
"""All adapters of a rank by stage, flat, in the order of its units."""


@dataclass
class BaseChanges:
    """The changes of a rank's part of the base. ``pairs``: by the name of each matrix that steps change."""

    plan: RankPlan
    pairs: Mapping[str, OwnPair] = field(init=False)

    def __post_init__(self) -> None:
        self.pairs = {
            f"{unit}.{matrix.name}.weight": OwnPair(f"{unit}.{matrix.down}", f"{unit}.{matrix.up}")
            for unit, block in self.plan.named_blocks
            for op in block.operators
            if isinstance(op, LowRank) and op.of_each_replica
            for matrix in op.matrices
        }
        self._spans: dict[str, list[ChangedSpan]] = {}
        for span in self.spans():
            self._spans.setdefault(span.tensor.name, []).append(span)

    def adapters(self) -> Adapters:
        """Return copies of the adapters of all stages that have some of this rank's own."""
        if not self.pairs:
            return {}
        units = {stage: self.plan.trained_units_of(stage) for stage in self.plan.stages}
        wide = self.plan.precision.statistic
        return {stage: torch.cat([unit.owned.to(wide) for unit in of]) for stage, of in units.items() if of}

    def add(self, before: Adapters) -> None:
        """Add the changes since ``before``, of all data-parallel ranks, to this rank's part of the base."""
        after = self.adapters()
        for stage, adapters in before.items():
            every = self._gathered(stage, torch.cat((adapters, after[stage])))
            start = 0
            for unit in self.plan.trained_units_of(stage):
                of_unit = every[..., start : start + unit.layout.size]
                start += unit.layout.size
                for name, pair in self.pairs.items():
                    if self.plan.unit_of[pair.down] is unit:
                        self._change(name, *_factors(unit, pair, of_unit))

    def _gathered(self, stage: int, own: torch.Tensor) -> torch.Tensor:
        """Return the adapters of all ranks of a stage: (rank, before and after, elements)."""
        replicas = replicas_of(self.plan.program)
        every = own
        for item in change_gathers_of(self.plan.program, stage):
            every = own.new_empty(replicas * len(own))
            self.plan.communicator.start(item, own, CHANGE_BYTES, out=every).wait()
        return every.view(replicas, BEFORE_AND_AFTER, -1)

    def spans(self) -> Iterator[ChangedSpan]:
        """Yield the parts of the base on this rank that steps change."""
        bases = (self.plan.unit_of[name] for name in self.pairs)
        for base in {id(unit): unit for unit in bases}.values():
            assert isinstance(base, FrozenUnit)
            found = (ChangedSpan(base, *span) for span in base.spans())
            yield from (span for span in found if span.tensor.name in self.pairs)

    def pieces(self) -> Iterator[Piece]:
        """Yield copies of the parts of the base on this rank that steps change."""
        for base, t, of, here in self.spans():
            yield Piece(t.name, t.whole_shape, t.shape, t.cuts, of.start, base.elements[here].clone())

    def _change(self, name: str, left: torch.Tensor, right: torch.Tensor) -> None:
        for base, tensor, of, here in self._spans.get(name, ()):
            inputs, held = tensor.shape[-1], base.elements[here]
            first, last = of.start // inputs, -(-of.stop // inputs)
            change = (left[first:last] @ right).flatten()[
                of.start - first * inputs : of.stop - first * inputs
            ]
            held.copy_(held.to(change) + change)


def _factors(unit: Unit, pair: OwnPair, every: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [B′ −B] and [A′; A] of all ranks side by side; their product is the change of the matrix."""
    places = unit.layout.places
    down, up = places[pair.down], places[pair.up]
    before, after = every.unbind(1)
    ups = [sign * up.of(of_rank) for sign, of in ((1, after), (-1, before)) for of_rank in of]
    downs = [down.of(of_rank) for of in (after, before) for of_rank in of]
    return torch.cat(ups, 1), torch.cat(downs, 0)
