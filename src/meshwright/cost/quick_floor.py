"""Lower bounds of time and memory of very many plans at once: what a search knows of plans before it prices them.

Blocks are priced once for each distinct shape of a pass; nothing is computed pipeline by pipeline. A step is no shorter
than

* the work of the mean rank: M·Σ (F + B) of all blocks / P, for the busiest rank has no less;
* what the last rank needs: M times its stages, behind the forward passes of the stages before its first one and ahead
  of their backward passes, where stages lie in a loop. Steps that overlap gain nothing there: the first rank's list
  ends with a backward pass, behind which its next step begins.

A device holds no less than the first rank's states, workspace, and activations: as many forward passes as its schedule
has in flight there where it declares that, else one of each of its stages; of these the smallest counts, with its
layers as the leanest one. Gradients that are cut count as none.

Left out are messages, exposed gathers and reductions, norm and optimizer, and all that happens inside a pipeline.
Neither bound is above what ``evaluate`` finds (tests).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.bounds import least_state_bytes
from meshwright.cost.evaluate import ModeGroup, mode_groups
from meshwright.cost.memory import workspace_bytes
from meshwright.cost.prices import total
from meshwright.cost.pricing import array_shape, pass_kinds
from meshwright.model.graph import BlockKind
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.distinct import distinct, looked_up
from meshwright.plan.layers import balanced_counts
from meshwright.plan.setting import Setting
from meshwright.program.shape import Number
from meshwright.program.states import block_elements
from meshwright.schedule.choice import ScheduleChoice
from meshwright.schedule.pipeline import looped_placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AT_ONCE = 2**17
"""Plans whose arrays are in memory at once."""


@dataclass(frozen=True)
class QuickFloor:
    """Seconds of a step and bytes on the worst device at least, of every plan: (n,)."""

    step_s: Floats
    total_bytes: Floats


def quick_floor(plans: PlanArrays, setting: Setting, usable_bytes: float = np.inf) -> QuickFloor:
    """Bounds of legal plans whose stages are balanced; seconds are infinite beyond ``usable_bytes``."""
    seconds, held = np.full(len(plans), np.inf), np.zeros(len(plans))
    for start in range(0, len(plans), AT_ONCE):
        some = plans.take(np.arange(start, min(start + AT_ONCE, len(plans))))
        for same in _groups(some, setting):
            at = start + same.rows
            held[at] = same.total_bytes
            small = np.flatnonzero(held[at] <= usable_bytes)
            if len(small):
                seconds[at[small]] = same.take(small).seconds
    return QuickFloor(seconds, held)


def _groups(plans: PlanArrays, setting: Setting) -> Iterator["_Same"]:
    for group in mode_groups(plans, setting):
        for rows in distinct([plans.schedule[group.rows]]).groups():
            chosen = group.rows[rows]
            yield _Same(group, chosen, plans.take(chosen), group.inverse[rows])


@dataclass(frozen=True)
class _Same:
    """Plans of one mode and one schedule, by their ``rows``; ``inverse`` are their rows of the group's prices."""

    group: ModeGroup
    rows: Ints
    plans: PlanArrays
    inverse: Ints

    def take(self, rows: Ints) -> "_Same":
        """Those at ``rows``."""
        return _Same(self.group, self.rows[rows], self.plans.take(rows), self.inverse[rows])

    @property
    def choice(self) -> ScheduleChoice:
        """The schedule."""
        return self.plans.schedules[int(self.plans.schedule[0])]

    @property
    def chain(self) -> Sequence[tuple[int, int]]:
        """The model's blocks with their repeats."""
        return self.group.setting.model.chain

    @property
    def layer_blocks(self) -> Sequence[int]:
        """The block of every layer."""
        return self.group.setting.model.layer_blocks

    @cached_property
    def micro_batches(self) -> Ints:
        return self.plans.micro_batches(self.group.setting.workload.global_batch)

    @cached_property
    def layers(self) -> "_Layers":
        return _layers(self.plans, self.layer_blocks, self.choice.kind.chains)

    @property
    def seconds(self) -> Floats:
        """Seconds of a step at least."""
        once = {block: self.per_plan(self.passes(block)) for block, _ in self.chain}
        chain = sum((repeat * once[block] for block, repeat in self.chain), start=np.zeros(1))
        work = self.micro_batches * chain / (self.plans.pp * self.choice.kind.chains)
        kind = self.choice.kind
        if kind.chains > 1 or kind.split or self.choice.form or kind.placement is not looped_placement:
            return np.asarray(work)
        own = self.of_layers(once, self.layers.on_last) + self.of_end(once, "head")
        embedding = np.where(self.plans.pp > 1, self.of_end(once, "embed"), 0.0)
        before = self.of_layers(once, self.layers.before_last) + embedding
        return np.maximum(work, self.micro_batches * own + before)

    @property
    def total_bytes(self) -> Floats:
        """Bytes on the worst device at least."""
        if self.choice.kind.chains > 1 or self.choice.form:
            return np.zeros(len(self.plans))
        kept = {block: self.per_plan(self.group.prices.kept[block]) for block, _ in self.chain}
        least = np.min([kept[block] for block in dict.fromkeys(self.layer_blocks)], axis=0)
        activations = self._in_flight() * np.floor(self.layers.in_stage * least)
        states = self._states()
        of_rank = self.of_layers(states, self.layers.on_first) + self.of_end(states, "embed")
        return np.asarray(of_rank + activations + np.floor(workspace_bytes()))

    def passes(self, block: int) -> Number:
        """Seconds of all passes of a micro-batch over a block, a row per distinct shape."""
        return sum(total(self.group.prices.block(block, kind)) for kind in pass_kinds(self.choice))

    def per_plan(self, value: Number) -> Floats:
        """A row for every plan."""
        array = np.asarray(value, dtype=np.float64)
        return array[self.inverse] if array.ndim else np.full(len(self.plans), float(array))

    def of_layers(self, values: dict[int, Floats], counts: Ints) -> Floats:
        """What so many layers of each block have together."""
        blocks = dict.fromkeys(self.layer_blocks)
        return sum(
            (counts[:, at] * values[block] for at, block in enumerate(blocks)),
            start=np.zeros(len(self.plans)),
        )

    def of_end(self, values: dict[int, Floats], kind: BlockKind) -> Floats:
        """What the embedding or the head has."""
        model = self.group.setting.model
        return next(values[index] for index, _ in self.chain if model.blocks[index].kind == kind)

    def _in_flight(self) -> Ints:
        """Forward passes of stages that the first rank holds at some moment at least."""

        def held(ranks: int, chunks: int, micro_batches: int) -> int:
            declared = self.choice.in_flight(0, ranks, micro_batches, chunks)
            return chunks if declared is None else declared

        return looked_up(held, [self.plans.pp, self.plans.virtual_stages, self.micro_batches])

    def _states(self) -> dict[int, Floats]:
        """Bytes of each block's states on a rank that holds it, at least."""
        setting, shape = self.group.setting, array_shape(self.plans, self.group.setting)
        elements = block_elements(setting.model.blocks, shape, ends_together=True)
        return {
            block: least_state_bytes(elements[block], self.plans, shape, setting.stack)
            for block, _ in self.chain
        }


@dataclass(frozen=True)
class _Layers:
    """How many layers of each block a plan has on its first rank, on its last rank, and before the last rank's first
    stage: (n, blocks); and all layers of the first rank's smallest stage: (n,)."""

    on_first: Ints
    on_last: Ints
    before_last: Ints
    in_stage: Ints


def _layers(plans: PlanArrays, layer_blocks: Sequence[int], chains: int) -> _Layers:
    blocks = list(dict.fromkeys(layer_blocks))
    which = np.eye(len(blocks), dtype=np.int64)[[blocks.index(block) for block in layer_blocks]]

    def found(ranks: int, chunks: int) -> tuple[int, ...]:
        counts = balanced_counts(len(layer_blocks), ranks * chunks // chains)
        stages = np.split(which, np.cumsum(counts)[:-1])
        parts = stages[::ranks], stages[ranks - 1 :: ranks], stages[: ranks - 1]
        sums = [np.concatenate([*part, which[:0]]).sum(0) for part in parts]
        return (*np.concatenate(sums).tolist(), min(counts[::ranks]))

    table = looked_up(found, [plans.pp, plans.virtual_stages]).astype(np.int64)
    first, last, before = np.split(table[:, :-1], 3, axis=1)
    return _Layers(first, last, before, table[:, -1])
