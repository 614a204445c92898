"""A batch of the data as one rank's micro-batches."""

import torch

from meshwright.program.program import Program
from meshwright.runtime import batch_parts
from meshwright.runtime.data.windows import NO_LABEL, Batch
from meshwright.runtime.visit import MicroBatch


def counted_labels(batch: Batch) -> int:
    """Labels of a batch that count: the same number on every rank, from the data alone."""
    return int((batch.labels != NO_LABEL).sum())


def micro_batches(
    batch: Batch, program: Program, rank: int, divisor: int, device: torch.device
) -> list[MicroBatch]:
    """A rank's rows of a step's whole batch."""
    begins = None if batch.begins is None else torch.from_numpy(batch.begins)
    step = batch_parts.StepBatch(torch.from_numpy(batch.tokens), torch.from_numpy(batch.labels), begins)
    return batch_parts.micro_batches(program, rank, step, divisor, device)
