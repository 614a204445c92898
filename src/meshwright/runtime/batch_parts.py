"""A step's batch as the micro-batches of one rank: its sequences, and of each the positions that it has."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from meshwright.program.program import Program
from meshwright.runtime.kernels.softmax import IGNORED
from meshwright.runtime.packing import Packing
from meshwright.runtime.rows import positions_of, rows_of
from meshwright.runtime.visit import MicroBatch


class StepBatch(NamedTuple):
    """All sequences of a step, (sequence, position).

    ``begins``: at which position the document of each token begins; None: each sequence is one.
    """

    tokens: torch.Tensor
    labels: torch.Tensor
    begins: torch.Tensor | None = None

    def ahead(self, places: int) -> "StepBatch":
        """At every position what stands so many places ahead; a label behind the document's end does not count."""

        def moved(ids: torch.Tensor, behind: int) -> torch.Tensor:
            return pad(ids, (0, places), value=behind)[:, places:]

        labels = moved(self.labels, IGNORED)
        if self.begins is not None:
            labels = labels.masked_fill(moved(self.begins, -1) != self.begins, IGNORED)
        return StepBatch(moved(self.tokens, 0), labels, self.begins)


def next_token_layers(program: Program) -> int:
    """How many layers, all in the last stage, predict further tokens."""
    return sum(program.blocks[block].predicts_further for block in program.stages[-1].blocks)


def micro_batches(
    program: Program, rank: int, batch: StepBatch, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """A rank's part; where its sequences' documents begin it knows of all positions."""
    positions = torch.tensor(positions_of(program, rank))

    def part(ids: torch.Tensor, rows: range) -> torch.Tensor:
        return ids[rows.start : rows.stop].index_select(1, positions).t().contiguous().to(device)

    def packing(rows: range) -> Packing | None:
        return None if batch.begins is None else Packing(batch.begins[rows.start : rows.stop].to(device))

    further = [batch.ahead(places) for places in range(1, next_token_layers(program) + 1)]

    def made(rows: range) -> MicroBatch:
        packed = packing(rows)
        main, *ahead = (
            MicroBatch(part(of.tokens, rows), part(of.labels, rows), divisor, packed)
            for of in (batch, *further)
        )
        return replace(main, further=tuple(ahead))

    return [made(rows) for rows in rows_of(program, rank)]
