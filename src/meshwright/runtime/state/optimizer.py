"""AdamW on shards, the global norm of gradients, and clipping by it.

AdamW (Loshchilov and Hutter, arXiv 1711.05101) with bias correction, on the flat shards in the dtype of statistics, in
which they are stored or are opened for the step (``stored_states.py``):
m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← (1 − lr·λ)p − lr·(m/(1−β₁ᵗ))/(√(v/(1−β₂ᵗ)) + ε). Weight decay λ excludes
vectors (norms, biases); each span of a shard belongs to one parameter, so shard borders do not affect the rule.

The norm counts every element of the model once: a shard by one owner among the replicas, what tp does not cut by the
first tp rank, a table of two stages by the first of them. Clipping is torch's formula: min(1, limit / (norm + 1e-6)).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch
from torch.optim.adamw import adamw

from meshwright.model.named_tensors import is_matrix
from meshwright.runtime.executor.rank_plan import RankPlan
from meshwright.runtime.state.gradient_norm import squares_of
from meshwright.runtime.state.hosted_unit import HostedUnit, ShardPart
from meshwright.runtime.state.shard_owner import first_owner
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.state.stored_states import Ranges, StoredState, opened
from meshwright.runtime.state.vector_lanes import Lanes, lanes, slices

CLIP_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Constants of the optimizer; ``clip`` is the largest global norm, None for no clipping."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0


@dataclass
class Moments:
    """First and second moment of one unit's shard, or a part of it: ``decayed`` are the matrices, ``others`` all else."""

    first: StoredState
    second: StoredState
    decayed: Ranges | Lanes
    others: Ranges | Lanes


@dataclass(frozen=True)
class Copies:
    """Parameters and moments of every unit's shard, as they were after ``step`` steps."""

    step: int
    shards: list[tuple[torch.Tensor, ...]]


@dataclass
class Optimizer:
    """The optimizer of one rank's shards. ``step`` is the number of steps it has taken.

    ``moments`` are those of each part that is stepped; ``counted`` are the ranges that this rank counts in the norm.
    """

    plan: RankPlan
    options: AdamW
    step: int = 0
    moments: dict[str, Moments] = field(default_factory=dict)
    counted: dict[str, Ranges] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program, rank = self.plan.program, self.plan.communicator.rank
        for unit in self.plan.all_units:
            counted = {
                t.name for t in unit.layout.tensors if first_owner(program, rank, unit.layout, t) == rank
            }
            self.counted[unit.name] = ranges(unit, counted)
        for unit in stepped_parts(self.plan):
            names = {t.name for t in unit.layout.tensors}
            matrices = {t.name for t in unit.layout.tensors if is_matrix(t.name, t.whole_shape)}
            self.moments[unit.name] = Moments(
                StoredState.zeros(unit, self.plan.precision.first_moment),
                StoredState.zeros(unit, self.plan.precision.second_moment),
                step_ranges(unit, matrices, self.plan.precision.statistic),
                step_ranges(unit, names - matrices, self.plan.precision.statistic),
            )

    def squares(self) -> torch.Tensor:
        """Return the sum of squares of the gradients that this rank counts."""
        total = torch.zeros((), dtype=self.plan.precision.statistic, device=self.plan.communicator.device)
        for unit in self.plan.all_units:
            for start, stop in self.counted[unit.name]:
                total += squares_of(unit, start, stop, total)
        return total

    def clipping(self, norm: float) -> float:
        """Return the factor of all gradients; 1 if their norm is below the limit."""
        limit = self.options.clip
        return 1.0 if limit is None else min(1.0, limit / (norm + CLIP_EPSILON))

    def copies(self) -> Copies:
        """Return copies of everything that a step overwrites."""
        return Copies(self.step, [tuple(b.clone() for b in self._buffers(u)) for u in self.plan.all_units])

    def restore(self, copies: Copies) -> None:
        """Restore parameters, moments and step number from copies."""
        self.step = copies.step
        for unit, saved in zip(self.plan.all_units, copies.shards, strict=True):
            for buffer, copy in zip(self._buffers(unit), saved, strict=True):
                buffer.copy_(copy)

    def _buffers(self, unit: Unit) -> tuple[torch.Tensor, ...]:
        """Return all that a step overwrites of a unit's shard."""
        moments = self.moments[unit.name]
        states = moments.first, moments.second
        return unit.owned, *(buffer for state in states for buffer in (state.values, state.scales))

    def update(self, norm: float, factor: float = 1.0) -> None:
        """Take one step on every shard; ``factor`` of the schedule scales the learning rate."""
        options, self.step = self.options, self.step + 1
        clip = self.clipping(norm)
        for unit in self.plan.hosted_units:
            unit.before_step()
        for unit in stepped_parts(self.plan):
            assert unit.reduced is not None
            wide = self.plan.precision.statistic
            gradient = unit.reduced.to(wide) if clip == 1.0 else unit.reduced.to(wide).mul_(clip)
            moments = self.moments[unit.name]
            states = StoredState(unit.owned, unit.owned[:0], ()), moments.first, moments.second
            with opened(states, wide) as (parameters, first, second):
                buffers = parameters, gradient, first, second
                self._update(buffers, moments.decayed, options.weight_decay, options.lr * factor)
                self._update(buffers, moments.others, 0.0, options.lr * factor)
        for unit in self.plan.all_units:
            unit.reduced = None
        for unit in self.plan.hosted_units:
            unit.settle()

    def _update(
        self, buffers: tuple[torch.Tensor, ...], where: Ranges | Lanes, weight_decay: float, lr: float
    ) -> None:
        """Run PyTorch's fused AdamW on ranges of a shard: of parameters, gradients and both moments."""
        if not where:
            return
        beta1, beta2 = self.options.betas
        with slices(buffers, where) as parts:
            steps = [
                torch.tensor(float(self.step - 1), device=buffers[0].device) for _ in parts[0]
            ]  # the kernel adds one
            adamw(
                parts[0],
                parts[1],
                parts[2],
                parts[3],
                [],
                steps,
                fused=True,
                lr=lr,
                beta1=beta1,
                beta2=beta2,
                weight_decay=weight_decay,
                eps=self.options.epsilon,
                amsgrad=False,
                maximize=False,
            )


def stepped_parts(plan: RankPlan) -> Iterator[Unit | ShardPart]:
    """Yield what is stepped by itself: units, or the device's and the host's part of each."""
    for unit in plan.all_units:
        yield from unit.parts if isinstance(unit, HostedUnit) else (unit,)


def step_ranges(part: Unit | ShardPart, names: Collection[str], dtype: torch.dtype) -> Ranges | Lanes:
    """Return where the named parameters are stepped in a shard, or in a part's memory."""
    if isinstance(part, ShardPart):
        return lanes(ranges(part.unit, names), part.split, part.on_host, dtype)
    return ranges(part, names)


def ranges(unit: Unit, names: Collection[str]) -> Ranges:
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
