"""Muon's update of the matrices in a unit's shard: momentum by element, then orthogonalisation of whole matrices.

The momentum M ← M + (1−μ)(G − M), or with Nesterov's form G + μ(M − G), is cast to bf16 (fp64 in a proof). Where
parameters are cut over shards too, all parts of a unit's matrices are gathered. Each matrix is orthogonalised as the
plan's ``tensor`` says, and its change, times scale and learning rate, is subtracted from what the shard has of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch

from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.matrix_exchanges import MATRIX_BYTES, exchange_of, gather_of_unit
from meshwright.program.pass_items import Collective
from meshwright.program.rank_units.local_matrices import LocalMatrix, Segment, merged, segments
from meshwright.runtime.comm.reduction_precision import sum_over_ranks
from meshwright.runtime.state.optimizer_parts import Moments, moments_of
from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.state.stored_states import Ranges, StoredState, place_in
from meshwright.runtime.state.update_rules.orthogonalisation import (
    orthogonalised,
    orthogonalised_columns,
    scale_factor,
)
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers.muon import BLOCKWISE, DUPLICATED
from meshwright.workload.optimizers.optimizer_kind import FIRST, Options


@dataclass(frozen=True)
class MuonUpdate:
    """The matrices of a unit's shard, of which ``segments`` are held.

    ``gathered`` are the segments of every shard where they have parts of matrices, which are gathered for the step.
    """

    unit: Unit
    options: Options
    states: Mapping[str, StoredState]
    matrices: Sequence[LocalMatrix]
    segments: Sequence[Segment]
    ranges: Ranges
    shape: LocalShape
    gathered: Sequence[Sequence[Segment]]

    def update(
        self, parameters: torch.Tensor, gradient: torch.Tensor, moments: Moments, number: int, lr: float
    ) -> None:
        """Take a step of Muon."""
        directions = self._directions(self._direction(gradient, moments[FIRST]))
        kept = 1 - lr * cast(float, self.options["weight_decay"])
        held: dict[int, list[Segment]] = {}
        for segment in self.segments:
            held.setdefault(segment.matrix, []).append(segment)
        for index, direction in directions.items():
            change, scale = self._change(self.matrices[index], direction)
            for _, start, stop, at in held.get(index, ()):
                p = parameters[at : at + stop - start]
                p.mul_(kept).add_(change.flatten()[start:stop], alpha=-lr * scale)

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype in which matrices are orthogonalised and exchanged."""
        wide = self.unit.precision.statistic == torch.float64
        return torch.float64 if wide else torch.bfloat16

    def _direction(self, gradient: torch.Tensor, momentum: torch.Tensor) -> torch.Tensor:
        """Update the momentum, and return what is orthogonalised, in the order of ``ranges``."""
        parts = [gradient[start:stop] for start, stop in self.ranges]
        g = parts[0] if len(parts) == 1 else torch.cat([gradient[:0], *parts])
        rate = cast(float, self.options["momentum"])
        momentum.lerp_(g, 1 - rate)
        return (g.lerp(momentum, rate) if self.options["nesterov"] else momentum).to(self.dtype)

    def _directions(self, own: torch.Tensor) -> dict[int, torch.Tensor]:
        """Return the directions of all matrices that this rank orthogonalises, by index."""
        if self.gathered:
            return dict(enumerate(self._from_all_shards(own)))
        found = {}
        for index, start, stop, at in self.segments:
            rows, columns = self.matrices[index].shape
            assert stop - start == rows * columns, "a matrix is owned in parts"
            place = place_in(self.ranges, slice(at, at + stop - start))
            found[index] = own[place].view(rows, columns)
        return found

    def _from_all_shards(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Gather the parts of all shards."""
        layout, communicator = self.unit.layout, self.unit.communicator
        whole = [own.new_empty(matrix.shape) for matrix in self.matrices]
        most = max(sum(s.stop - s.start for s in of_part) for of_part in self.gathered)
        elements = sum(matrix.numel() for matrix in whole)
        padded = own.new_zeros(most)
        padded[: len(own)] = own
        rows = own.new_empty(layout.parts * most)
        item = gather_of_unit(elements, expert=self.matrices[0].kind.expert)
        communicator.start(item, padded, MATRIX_BYTES, out=rows, elements=elements).wait()
        for part, of_part in enumerate(self.gathered):
            at = part * most
            for index, start, stop, _ in of_part:
                whole[index].view(-1)[start:stop] = rows[at : at + stop - start]
                at += stop - start
        return whole

    def _change(self, matrix: LocalMatrix, direction: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return this rank's block of an orthogonalised matrix, and its factor."""
        steps, mode = int(cast(float, self.options["steps"])), str(self.options["tensor"])
        scale, item = str(self.options["scale"]), exchange_of(matrix.kind, mode, self.shape)
        if item is None or len(self.unit.communicator.ranks_of(item.axes)) == 1:
            outputs, inputs = matrix.shape if mode == BLOCKWISE else matrix.kind.whole()
            return orthogonalised(direction, steps), scale_factor(scale, outputs, inputs)
        factor = scale_factor(scale, *matrix.kind.whole())
        if mode == DUPLICATED:
            return self._duplicated(matrix, direction, item, steps), factor
        turned = matrix.kind.cut == "outputs"
        columns = direction.mT if turned else direction
        change = orthogonalised_columns(columns, steps, lambda gram: self._summed(item, gram))
        return (change.mT if turned else change), factor

    def _duplicated(
        self, matrix: LocalMatrix, block: torch.Tensor, item: Collective, steps: int
    ) -> torch.Tensor:
        """Gather the blocks of tensor parallelism, orthogonalise the whole, and return this rank's block."""
        communicator = self.unit.communicator
        ranks, (outputs, inputs) = len(communicator.ranks_of(item.axes)), matrix.kind.whole()
        rows = block.new_empty(ranks * block.numel())
        elements = outputs * inputs
        communicator.start(item, block.flatten(), MATRIX_BYTES, out=rows, elements=elements).wait()
        side = 0 if matrix.kind.cut == "outputs" else 1
        blocks = torch.cat(list(rows.view(ranks, *block.shape)), side)  # padded where the cut is uneven
        change = torch.zeros_like(blocks)
        change[:outputs, :inputs] = orthogonalised(blocks[:outputs, :inputs].contiguous(), steps)
        return change.chunk(ranks, side)[communicator.place_in(item.axes)].contiguous()

    def _summed(self, item: Collective, gram: torch.Tensor) -> torch.Tensor:
        """Return the sum of all ranks' Gram matrices."""
        total = gram.contiguous()
        precision = replace(self.unit.precision, reduce=self.dtype)
        for work in sum_over_ranks(self.unit.communicator, item, total, precision, MATRIX_BYTES):
            work.wait()
        return total


def new_muon_update(
    unit: Unit,
    optimizer: Optimizer,
    options: Options,
    matrices: Sequence[LocalMatrix],
    shape: LocalShape,
    *,
    gathers: bool,
) -> MuonUpdate:
    """Return the part of a unit's matrices; ``gathers``: shards have parts of them."""
    held = tuple(segments(unit.layout, unit.part, matrices))
    where = merged(held)
    states = moments_of(unit, optimizer.own_moments, unit.precision, where)
    parts = range(unit.layout.parts) if gathers and unit.layout.parts > 1 else ()
    every = [tuple(segments(unit.layout, part, matrices)) for part in parts]
    return MuonUpdate(unit, options, states, matrices, held, where, shape, every)
