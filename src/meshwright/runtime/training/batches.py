"""A batch of the data as one rank's micro-batches."""

from collections.abc import Sequence

import torch
from numpy.typing import NDArray

from meshwright.program.program import Program
from meshwright.runtime.data.windows import NO_LABEL, Batch
from meshwright.runtime.rows import rows_of
from meshwright.runtime.visit import MicroBatch


def counted_labels(batch: Batch) -> int:
    """Labels of a batch that count: the same number on every rank, from the data alone."""
    return int((batch.labels != NO_LABEL).sum())


def micro_batches(
    batch: Batch, program: Program, rank: int, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """A rank's rows of a step's whole batch."""
    return [
        MicroBatch(_columns(batch.tokens, rows, device), _columns(batch.labels, rows, device), divisor)
        for rows in rows_of(program, rank)
    ]


def _columns(ids: NDArray, rows: Sequence[int], device: torch.device) -> torch.Tensor:  # type: ignore[type-arg]
    """(sequences, tokens) as the (tokens, sequences) of some rows."""
    return torch.from_numpy(ids[list(rows)].T.copy()).to(device)
