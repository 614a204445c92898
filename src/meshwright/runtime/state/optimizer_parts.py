"""The parts of a unit's shard by the optimizer that updates them, each with its states.

Most optimizers take the whole shard; Muon takes the matrices of hidden layers, and another one the rest.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch

from meshwright.model.named_tensors import TOKEN_TABLE, is_matrix
from meshwright.program.program import table_changes_layout
from meshwright.runtime.precision import Precision
from meshwright.runtime.state.on_host.offloaded_unit import ShardPart
from meshwright.runtime.state.on_host.vector_lanes import Lanes, all_in_vectors, lanes, lent
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.state.stored_states import Ranges, StoredState, place_in
from meshwright.runtime.state.update_rules import UPDATE_RULES
from meshwright.runtime.state.update_rules.update_rule import StepValues
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers.optimizer_kind import Options

Moments = Mapping[str, torch.Tensor]
"""Opened moments by key of ``dtypes``."""


class OptimizerPart(Protocol):
    """The part of a unit's shard that one optimizer updates; ``states`` are its moments by key of ``dtypes``."""

    @property
    def states(self) -> Mapping[str, StoredState]:
        """The stored moments."""

    def update(
        self, parameters: torch.Tensor, gradient: torch.Tensor, moments: Moments, number: int, lr: float
    ) -> None:
        """Take step ``number``, from 1, on the shard's parameters and this part's moments, in place."""


@dataclass(frozen=True)
class ElementPart:
    """A part that is updated element by element; ``decayed`` are its matrices, ``plain`` its vectors."""

    optimizer: Optimizer
    options: Options
    states: Mapping[str, StoredState]
    ranges: Ranges | None
    decayed: Ranges | Lanes
    plain: Ranges | Lanes

    def update(
        self, parameters: torch.Tensor, gradient: torch.Tensor, moments: Moments, number: int, lr: float
    ) -> None:
        """Take a step by the optimizer's rule."""
        rule = UPDATE_RULES[self.optimizer.name]
        for where, decay in ((self.decayed, cast(float, self.options["weight_decay"])), (self.plain, 0.0)):
            if not where:
                continue
            values = StepValues(number, lr, decay, self.options)
            if isinstance(where, Lanes):
                with lent([parameters, gradient, *moments.values()], where) as (p, g, *own):
                    rule(p, g, dict(zip(moments, own, strict=True)), values)
                continue
            slices = [slice(start, stop) for start, stop in where]
            places = [place_in(self.ranges, here) for here in slices]
            rule(
                [parameters[here] for here in slices],
                [gradient[here] for here in slices],
                {key: [moment[place] for place in places] for key, moment in moments.items()},
                values,
            )


def element_part(
    unit: Unit | ShardPart,
    optimizer: Optimizer,
    options: Options,
    precision: Precision,
    names: Collection[str] | None,
) -> ElementPart:
    """Return the part of the named parameters; of the whole shard where ``names`` is None."""
    matrices = {t.name for t in unit.layout.tensors if is_matrix(t.name, t.whole_shape)}
    taken = {t.name for t in unit.layout.tensors} if names is None else frozenset(names)
    where = None if names is None else ranges(unit, taken)
    return ElementPart(
        optimizer,
        options,
        moments_of(unit, optimizer.own_moments, precision, where),
        where,
        step_ranges(unit, taken & matrices, precision.statistic),
        step_ranges(unit, taken - matrices, precision.statistic),
    )


def step_ranges(unit: Unit | ShardPart, names: Collection[str], dtype: torch.dtype) -> Ranges | Lanes:
    """Return where the named parameters are stepped in a shard, or in the memory of a part of it."""
    if isinstance(unit, ShardPart):
        return lanes(ranges(unit.unit, names), unit.split, unit.on_host, dtype)
    program = unit.communicator.program
    if any(tensor.name == TOKEN_TABLE for tensor in unit.layout.tensors) and table_changes_layout(program):
        return all_in_vectors(ranges(unit, names), dtype)  # shards of the two copies end at unlike elements
    return ranges(unit, names)


def moments_of(
    unit: Unit | ShardPart, keys: Sequence[str], precision: Precision, where: Ranges | None
) -> dict[str, StoredState]:
    """Return moments of zero in the run's types."""
    return {key: StoredState.zeros(unit, getattr(precision, key), where) for key in keys}


def ranges(unit: Unit | ShardPart, names: Collection[str]) -> Ranges:
    """Return the ranges of a unit's shard that hold the named parameters; adjacent ones are merged."""
    found: list[tuple[int, int]] = []
    for name, _, here in unit.spans():
        if name not in names:
            continue
        if found and found[-1][1] == here.start:
            found[-1] = (found[-1][0], here.stop)
        else:
            found.append((here.start, here.stop))
    return tuple(found)
