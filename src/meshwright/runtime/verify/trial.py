"""What is tried: a small Program, its model, parameters and batches that depend on a seed alone.

Labels are masked in unlike shares from sequence to sequence, so that ranks count unlike numbers of labels: a mean of
means is not the mean. Parameters deviate enough for scores of attention to matter, and gradients are clipped. The
optimizer's steps are long, and its ε is no smaller than a usual gradient: then what is almost zero does not magnify its
rounding, and the parameters see the scale of gradients, to which AdamW is blind otherwise. Packed sequences have their
documents at other places each: many short ones, few, or one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.model.graph import ModelGraph
from meshwright.program.program import Program
from meshwright.runtime import batch_parts
from meshwright.runtime.communicator import SEQUENCE_RANKS
from meshwright.runtime.kernels.softmax import IGNORED
from meshwright.runtime.optimizer import AdamW
from meshwright.runtime.random_tensors import random_tensors
from meshwright.runtime.reference.capacity import Bounded
from meshwright.runtime.rows import places_of
from meshwright.runtime.visit import MicroBatch

STEPS = 3
SEED = 0
DEVIATION = 0.2
MASKED = (0.1, 0.5, 0.0, 0.7, 0.3)
"""Shares of masked labels of sequences, in turn."""
BORDERS = (0.15, 0.6, 0.0, 0.3)
"""How likely a position of a packed sequence is to begin a document, by sequences in turn."""
OPTIONS = AdamW(lr=1e-2, epsilon=1e-3, clip=0.5)


class Batch(batch_parts.StepBatch):
    """A step's sequences."""

    @property
    def counted(self) -> int:
        """Labels that count, over all sequences."""
        return int((self.labels != IGNORED).sum())


@dataclass(frozen=True)
class Trial:
    """A Program in which ``program.shape`` gives the lengths, the model that it was lowered for, and the optimizer."""

    program: Program
    model: ModelGraph
    options: AdamW = OPTIONS

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        replicas = self.program.grid.size(("dp_replicate", "dp_shard"))
        return replicas * self.program.micro_batches * int(self.program.shape.micro_batch)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters at the beginning."""
        return random_tensors(self.model, SEED, torch.float64, DEVIATION)

    def batches(self) -> list[Batch]:
        """One for each step."""
        return [self._batch(SEED + step) for step in range(STEPS)]

    @property
    def bounded(self) -> Bounded | None:
        """In which scope of a capacity every token is."""
        program = self.program
        capacity, size = program.shape.capacity, int(program.shape.micro_batch)
        if capacity is None:
            return None
        sequences = torch.arange(self.sequences)[:, None]
        parts = torch.zeros(1, int(program.shape.seq_len), dtype=torch.long)
        if capacity.scope == "rank":
            for part, rank in enumerate(program.grid.group_of(0, SEQUENCE_RANKS)):
                parts[0, places_of(program, rank)] = part
        of = sequences if capacity.scope == "sequence" else sequences // size
        return Bounded(capacity, of * (int(parts.max()) + 1) + parts)

    def _batch(self, seed: int) -> Batch:
        draw = torch.Generator().manual_seed(seed)
        size = (self.sequences, int(self.program.shape.seq_len))
        tokens, labels = torch.randint(self.model.architecture.vocab, (2, *size), generator=draw)
        masked = torch.rand(size, generator=draw) < self._in_turn(MASKED)
        masked[0, 0] = False
        begins = self._begins(draw) if self.program.shape.documents else None
        return Batch(tokens, labels.masked_fill(masked, IGNORED), begins)

    def _begins(self, draw: torch.Generator) -> torch.Tensor:
        """Where the document of every token begins."""
        places = torch.arange(int(self.program.shape.seq_len)).expand(self.sequences, -1)
        new = torch.rand(places.shape, generator=draw) < self._in_turn(BORDERS)
        return torch.where(new, places, 0).cummax(1).values

    def _in_turn(self, shares: Sequence[float]) -> torch.Tensor:
        """One for each sequence: (sequence, 1)."""
        return torch.tensor([shares[i % len(shares)] for i in range(self.sequences)])[:, None]


def micro_batches(trial: Trial, batch: Batch, rank: int) -> Sequence[MicroBatch]:
    """A rank's part of a batch."""
    device = torch.device("cpu")
    return batch_parts.micro_batches(trial.program, rank, batch, batch.counted, device)
