"""Convert a data batch into one rank's micro-batches."""

import torch

from meshwright.program.program import Program
from meshwright.runtime.batch import rank_micro_batches
from meshwright.runtime.data.sequence_windows import NO_LABEL, Batch
from meshwright.runtime.executor.operator_call import MicroBatch


def counted_labels(batch: Batch) -> int:
    """Return the number of labels in a batch that count: the same on every rank, from the data alone."""
    return int((batch.labels != NO_LABEL).sum())


def micro_batches(
    batch: Batch, program: Program, rank: int, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """Return a rank's micro-batches of a step's whole batch."""
    begins, encoder = (
        None if field is None else torch.from_numpy(field) for field in (batch.begins, batch.encoder)
    )
    step = rank_micro_batches.StepBatch(
        torch.from_numpy(batch.tokens), torch.from_numpy(batch.labels), begins, encoder
    )
    return rank_micro_batches.micro_batches(program, rank, step, divisor, device)
