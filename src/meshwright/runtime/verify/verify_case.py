"""A verification case: a small Program, its model, and parameters and batches that depend on a seed alone.

The fraction of masked labels differs from sequence to sequence, so that ranks count different numbers of labels: a mean
of means is not the mean. Parameters deviate enough for attention scores to matter, and gradients are clipped. The
learning rate is large, and ε is no smaller than a usual gradient: values near zero then do not magnify their rounding,
and the parameters depend on the scale of gradients, which AdamW otherwise ignores. Each packed sequence has other
document borders: many short documents, few, or one. Where similar rows of experts travel as one there are few words and
equal sequences, and the first one repeats a word: some rows are then equal in every layer. An encoder reads a random
text, or patches of normal numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import named_parameters
from meshwright.model.transforms.lora_adapters import with_stacked_pairs
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.program.model_states.base_changes import replicas_of
from meshwright.program.program import Program, sequences_of_step
from meshwright.program.synchronisation.token_hashing import TokenHashing
from meshwright.runtime.batch import rank_micro_batches
from meshwright.runtime.batch.batch_sharding import sequence_parallel_positions
from meshwright.runtime.batch.label_counts import divisor_of, labels_by_replica
from meshwright.runtime.comm.process_groups import SEQUENCE_RANKS
from meshwright.runtime.data.encoder_input import EncoderInput, blank_image_rows, encoder_input
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.kernels.moe.token_buckets import projections
from meshwright.runtime.kernels.vocabulary.sharded_softmax import IGNORED
from meshwright.runtime.reference.expert_buckets import Bucketed
from meshwright.runtime.reference.expert_capacity import Bounded
from meshwright.runtime.reference.feedforward import Sending
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.weights.random_tensors import random_tensors
from meshwright.workload.base_types import QUANTISED
from meshwright.workload.expert_capacity import CapacityScope
from meshwright.workload.images import Images

STEPS = 3
SEED = 0
DEVIATION = 0.2
WIDE_DEVIATION = 0.05
MASKED = (0.1, 0.5, 0.0, 0.7, 0.3)
"""Fractions of masked labels, by sequence in turn."""
BORDERS = (0.15, 0.6, 0.0, 0.3)
"""Probability that a position of a packed sequence begins a document, by sequence in turn."""
WORDS = 3
"""Different token ids where similar rows of experts travel as one."""
OPTIONS = StepOptions(lr=1e-2, epsilon=1e-3, clip=0.5)


class Batch(rank_micro_batches.StepBatch):
    """The sequences of a step."""

    @property
    def counted(self) -> int:
        """Labels that count, over all sequences."""
        return int((self.labels != IGNORED).sum())

    def of(self, rows: slice | list[int]) -> "Batch":
        """Return the batch of some of the sequences."""
        begins, encoder = (None if field is None else field[rows] for field in (self.begins, self.encoder))
        return Batch(self.tokens[rows], self.labels[rows], begins, encoder)


@dataclass(frozen=True)
class VerifyCase:
    """A Program whose parts' shapes give the lengths, the model that it was lowered for, and the optimizer.

    ``rates`` are learning rates that rules of ``synchronise`` see; the optimizer's own stays the same.
    ``exact``: the reference sends every row of experts as it is.
    """

    program: Program
    model: ModelGraph
    options: StepOptions = OPTIONS
    steps: int = STEPS
    rates: LearningRates | None = None
    exact: bool = False

    @property
    def sequences(self) -> int:
        """Sequences of a step."""
        return sequences_of_step(self.program)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the initial parameters.

        They are smaller where blocks of a quantised base make matrices wide, and where scores are not scaled.
        """
        quantised = any(p.storage in QUANTISED for p in named_parameters(self.model).values())
        unscaled = self.model.architecture.positions == "relative"
        model = with_stacked_pairs(self.model, replicas_of(self.program))
        return random_tensors(
            model, SEED, torch.float64, WIDE_DEVIATION if quantised or unscaled else DEVIATION
        )

    def batches(self) -> list[Batch]:
        """Return one batch for each step."""
        return [self._batch(SEED + step) for step in range(self.steps)]

    @property
    def images(self) -> Images | None:
        """The images of each sequence; None without any."""
        return self.program.parts[0].shape.encoder.images

    @property
    def sending(self) -> Sending | None:
        """The limits of what experts get, with the scope of every token; None without any."""
        capacity, hashing = self.program.parts[0].shape.capacity, self.program.parts[0].shape.hashing
        if hashing is not None and not self.exact:
            return Bucketed(self._hash_matrices(hashing), self._scopes("rank"))
        return None if capacity is None else Bounded(capacity, self._scopes(capacity.scope))

    def _scopes(self, scope: CapacityScope) -> torch.Tensor:
        """Return the scope of every token: (sequences, 1 or positions)."""
        part = self.program.parts[0]
        sequences = torch.arange(self.sequences)[:, None]
        parts = torch.zeros(1, int(part.shape.seq_len), dtype=torch.long)
        if scope == "rank":
            for place, rank in enumerate(part.grid.group_of(0, SEQUENCE_RANKS)):
                parts[0, sequence_parallel_positions(part, rank)] = place
        of = sequences if scope == "sequence" else sequences // int(part.shape.micro_batch)
        return of * (int(parts.max()) + 1) + parts

    def _hash_matrices(self, hashing: TokenHashing) -> dict[str, torch.Tensor]:
        """Return the random matrices of each layer's hashes."""
        architecture = self.model.architecture
        return {
            f"layers.{layer}": projections(hashing, SEED, layer, architecture.hidden).unflatten(
                1, (hashing.hashes, hashing.width)
            )
            for layer in range(architecture.layers)
        }

    def _batch(self, seed: int) -> Batch:
        draw = torch.Generator().manual_seed(seed)
        size = (self.sequences, int(self.program.parts[0].shape.seq_len))
        tokens, labels = torch.randint(self.model.architecture.vocab, (2, *size), generator=draw)
        if self.program.parts[0].shape.hashing is not None:
            tokens = _alike(tokens)
        masked = torch.rand(size, generator=draw) < self._in_turn(MASKED)
        shape = self.program.parts[0].shape
        read = encoder_input(self.model.architecture.encoder, shape.encoder)
        masked[0, read.rows - 1 if read is not None and read.rows else 0] = False
        labels = labels.masked_fill(masked, IGNORED)
        begins = self._begins(draw) if shape.documents else None
        if read is None:
            return Batch(tokens, labels, begins)
        blank_image_rows(tokens, labels, read.rows)
        return Batch(tokens, labels, begins, self._read(read, draw))

    def _read(self, size: EncoderInput, draw: torch.Generator) -> torch.Tensor:
        """Return random token ids or patches for an encoder."""
        if size.elements:
            return torch.randn(
                (self.sequences, size.tokens, size.elements), generator=draw, dtype=torch.float32
            )
        return torch.randint(self.model.architecture.vocab, (self.sequences, size.tokens), generator=draw)

    def _begins(self, draw: torch.Generator) -> torch.Tensor:
        """Return the begin of each token's document."""
        places = torch.arange(int(self.program.parts[0].shape.seq_len)).expand(self.sequences, -1)
        new = torch.rand(places.shape, generator=draw) < self._in_turn(BORDERS)
        return torch.where(new, places, 0).cummax(1).values

    def _in_turn(self, shares: Sequence[float]) -> torch.Tensor:
        """Return one share for each sequence: (sequence, 1)."""
        return torch.tensor([shares[i % len(shares)] for i in range(self.sequences)])[:, None]


def _alike(tokens: torch.Tensor) -> torch.Tensor:
    """Return sequences of few words, in equal pairs, the first of one word: some rows of experts are then alike."""
    few = tokens % WORDS
    few[0] = few[0, 0]
    few[1::2] = few[: len(few) // 2 * 2 : 2]
    return few


def micro_batches(
    trial: VerifyCase, batch: Batch, rank: int, device: torch.device | None = None
) -> Sequence[MicroBatch]:
    """Return a rank's part of a batch, on the CPU or on the given device."""
    device, by_replica = device or torch.device("cpu"), labels_by_replica(trial.program, batch.labels)
    divisor = divisor_of(trial.program, rank, batch.labels, by_replica)
    return rank_micro_batches.micro_batches(trial.program, rank, batch, divisor, device)
