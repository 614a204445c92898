"""The optimizer of a rank's shards, the global norm of gradients, and clipping by it.

A plan's optimizer has an update rule (``update_rules/``), on the flat shards in the dtype of statistics, in which
states are stored or are opened for the step (``stored_states.py``). Weight decay excludes vectors (norms, biases); each
span of a shard belongs to one parameter, so shard borders do not affect the rule.

The norm counts every element of the model once: a shard by one owner among the replicas, what tp does not cut by the
first tp rank, a table of two stages by the first of them. Clipping is torch's formula: min(1, limit / (norm + 1e-6)).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from meshwright.program.model_states.hidden_matrices import gathered
from meshwright.program.rank_units.local_matrices import local_matrices
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.gradient_norm import squares_of
from meshwright.runtime.state.muon_update import new_muon_update
from meshwright.runtime.state.on_host.offloaded_unit import OffloadedUnit, ShardPart, sides_of
from meshwright.runtime.state.optimizer_parts import OptimizerPart, element_part, ranges
from meshwright.runtime.state.shard_owner import first_owner, is_second_copy
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.state.stored_states import Ranges, StoredState, opened

CLIP_EPSILON = 1e-6


class StoredMoment(NamedTuple):
    """A moment of a span: its key of ``dtypes``, the parts of its memory in order, and its scale, if it has one."""

    key: str
    memory: tuple[torch.Tensor, ...]
    scale: torch.Tensor | None


@dataclass(frozen=True)
class Copies:
    """Parameters and moments of every unit's shard, as they were after ``step`` steps."""

    step: int
    shards: list[tuple[torch.Tensor, ...]]


@dataclass
class Optimizer:
    """The optimizer of one rank's shards. ``step`` is the number of steps it has taken.

    ``parts`` and ``counted``, the ranges that this rank counts in the norm, are by name of the unit.
    """

    plan: RankPlan
    options: StepOptions
    step: int = 0
    parts: dict[str, list[OptimizerPart]] = field(default_factory=dict)
    counted: dict[str, Ranges] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program, rank = self.plan.program, self.plan.communicator.rank
        for unit in self.plan.trained_units:
            counted = {
                t.name
                for t in unit.layout.tensors
                if first_owner(program, rank, unit.layout, t, unit.communicator.part) == rank
                and not is_second_copy(program, unit.communicator.part_index, t)
            }
            self.counted[unit.name] = ranges(unit, counted)
            for stepped in stepped_alone(unit):
                self.parts[stepped.name] = self._parts(stepped)

    def _parts(self, unit: Unit | ShardPart) -> list[OptimizerPart]:
        stack, precision = self.plan.program.stack, self.plan.precision
        optimizer = stack.optimizer
        if optimizer.forward_only:
            return []
        options = self.options.for_optimizer(optimizer, stack.muon_scale)
        if not optimizer.kind.of_matrices or isinstance(unit, ShardPart):
            return [element_part(unit, optimizer, options, precision, None)]
        matrices = local_matrices(self.plan.named_blocks, unit.layout, stack)
        names = {t.name for t in unit.layout.tensors} - {matrix.name for matrix in matrices}
        of_others = self.options.for_optimizer(optimizer.others, stack.muon_scale)
        parts: list[OptimizerPart] = []
        if matrices:
            part = unit.communicator.part
            cut = gathered(part.sharding)
            parts.append(new_muon_update(unit, optimizer, options, matrices, part.shape, gathers=cut))
        if names:
            parts.append(element_part(unit, optimizer.others, of_others, precision, names))
        return parts

    def squares(self) -> torch.Tensor:
        """Return the sum of squares of the gradients that this rank counts."""
        total = torch.zeros((), dtype=self.plan.precision.statistic, device=self.plan.communicator.device)
        for unit in self.plan.trained_units:
            for start, stop in self.counted[unit.name]:
                total += squares_of(unit, start, stop, total)
        return total

    def clipping(self, norm: float) -> float:
        """Return the factor of all gradients; 1 if their norm is below the limit."""
        limit = self.options.clip
        return 1.0 if limit is None else min(1.0, limit / (norm + CLIP_EPSILON))

    def moments_at(self, unit: Unit, here: slice) -> Iterator[StoredMoment]:
        """Yield the moments of a span of a unit's shard."""
        sides: list[tuple[Unit | ShardPart, list[slice]]] = [(unit, [here])]
        if isinstance(unit, OffloadedUnit):
            sides = [(side, side.places(here)) for side in sides_of(unit)]
        found: dict[str, list[tuple[StoredState, slice]]] = {}
        for stepped, places in sides:
            for part in self.parts[stepped.name]:
                for key, state in part.states.items():
                    stored = [(state, place) for place in map(state.place, places) if place is not None]
                    found.setdefault(key, []).extend(stored)
        for key, stored in found.items():
            if stored:
                memory = tuple(state.values[place] for state, place in stored)
                yield StoredMoment(key, memory, stored[0][0].scale_at(stored[0][1].start))

    def copies(self) -> Copies:
        """Return copies of everything that a step overwrites."""
        return Copies(
            self.step, [tuple(b.clone() for b in self._buffers(u)) for u in self.plan.trained_units]
        )

    def restore(self, copies: Copies) -> None:
        """Restore parameters, moments and step number from copies."""
        self.step = copies.step
        for unit, saved in zip(self.plan.trained_units, copies.shards, strict=True):
            for buffer, copy in zip(self._buffers(unit), saved, strict=True):
                buffer.copy_(copy)

    def _buffers(self, unit: Unit) -> tuple[torch.Tensor, ...]:
        """Return all that a step overwrites of a unit's shard."""
        states = [state for part in self.parts[unit.name] for state in part.states.values()]
        return unit.owned, *(buffer for state in states for buffer in (state.values, state.scales))

    def update(self, norm: float, factor: float = 1.0) -> None:
        """Take one step on every shard; ``factor`` of the schedule scales the learning rate."""
        self.step += 1
        clip, lr, wide = self.clipping(norm), self.options.lr * factor, self.plan.precision.statistic
        for hosted in self.plan.offloaded_units:
            hosted.before_step()
        for unit in self.plan.trained_units:
            for stepped in stepped_alone(unit):
                assert stepped.reduced is not None
                gradient = stepped.reduced.to(wide) if clip == 1.0 else stepped.reduced.to(wide).mul_(clip)
                with opened([StoredState(stepped.owned, stepped.owned[:0], ())], wide) as (parameters,):
                    for part in self.parts[stepped.name]:
                        with opened(list(part.states.values()), wide) as moments:
                            named = dict(zip(part.states, moments, strict=True))
                            part.update(parameters, gradient, named, self.step, lr)
            unit.reduced = None
        for hosted in self.plan.offloaded_units:
            hosted.settle()


def stepped_alone(unit: Unit) -> tuple[Unit | ShardPart, ...]:
    """Return what of a unit is stepped by itself: the unit, or the parts on the host and on the device."""
    return sides_of(unit) if isinstance(unit, OffloadedUnit) else (unit,)
