"""A step's batch as the micro-batches of one rank: its sequences, and of each the positions that it has."""

from typing import NamedTuple

import torch

from meshwright.program.program import Program
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


def micro_batches(
    program: Program, rank: int, batch: StepBatch, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """A rank's part; where its sequences' documents begin it knows of all positions."""
    positions = torch.tensor(positions_of(program, rank))

    def part(ids: torch.Tensor, rows: range) -> torch.Tensor:
        return ids[rows.start : rows.stop].index_select(1, positions).t().contiguous().to(device)

    def packing(rows: range) -> Packing | None:
        return None if batch.begins is None else Packing(batch.begins[rows.start : rows.stop].to(device))

    return [
        MicroBatch(part(batch.tokens, rows), part(batch.labels, rows), divisor, packing(rows))
        for rows in rows_of(program, rank)
    ]
