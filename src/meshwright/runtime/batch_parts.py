"""A step's batch as the micro-batches of one rank: its sequences, and of each the positions that it has."""

import torch

from meshwright.program.program import Program
from meshwright.runtime.rows import positions_of, rows_of
from meshwright.runtime.visit import MicroBatch


def micro_batches(
    program: Program,
    rank: int,
    tokens: torch.Tensor,
    labels: torch.Tensor,
    divisor: int,
    device: torch.device,
) -> list[MicroBatch]:
    """``tokens`` and ``labels`` are those of the whole step, (sequence, position)."""
    positions = torch.tensor(positions_of(program, rank))

    def part(ids: torch.Tensor, rows: range) -> torch.Tensor:
        return ids[rows.start : rows.stop].index_select(1, positions).t().contiguous().to(device)

    return [MicroBatch(part(tokens, rows), part(labels, rows), divisor) for rows in rows_of(program, rank)]
