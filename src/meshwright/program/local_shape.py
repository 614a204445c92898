"""The local shape: one rank's part of sequences, heads, widths and experts.

Every field may be an int or an array of ints, so that one body of code lowers a single plan and prices an
array of plans. What is a *choice* between code paths (sequence parallelism, sharding) is a
scalar: closed forms group plans by it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.operators.operator_types import Attention, Operator
from meshwright.plans.context_parallel import USUAL, Context
from meshwright.program.synchronisation.token_hashing import TokenHashing
from meshwright.workload.encoder_lengths import NO_ENCODER, EncoderLengths
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.packed_documents import Documents

Number = int | float | NDArray[Any]

ACTIVATION_BYTES = 2
"""An element that is kept, or that travels between ranks."""
STATISTIC_BYTES = 4
"""What attention keeps of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The choices that change which operations exist.

    ``gather`` and ``reduce`` are when sharded parameters are gathered and gradients reduced
    (``program/model_states/stack_zero_semantics.py``), ``context`` how the ranks of cp bring queries to keys. What
    runs again in the backward pass is a matter of each block.
    """

    sequence_parallel: bool
    gather: str = "never"
    reduce: str = "per-step"
    context: Context = USUAL

    @property
    def by_unit(self) -> bool:
        """Parameters are gathered and gradients reduced with each unit of micro-batches."""
        return self.gather == "per-unit"

    @property
    def passes_exchange_states(self) -> bool:
        """Forward or backward passes gather parameters or reduce gradients."""
        return self.gather in ("per-layer", "per-micro-batch") or self.reduce == "per-micro-batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShape:
    """Work of one rank for one micro-batch. ``micro_batch`` in sequences, ``seq_len`` in tokens.

    ``vocabulary`` is the number of pipeline ranks over which tables of the vocabulary are cut, besides tp. ``shard`` is
    the number of ranks that share one copy of the dense states (dp_shard·cp), ``expert_shard`` the same for the
    experts' (edp_shard). ``state_share`` are the weights of the former, none where all have equally much.
    ``product_input_bytes`` is what an element of a matrix product's kept input takes: 2, or 1 where products run in 8
    or 4 bit and keep the quantised input. ``ulysses`` is the number of cp's ranks that have whole sequences of a part
    of the heads while they attend, ``ep_inside`` that of ep's ranks in one fast domain. ``documents`` are those that
    sequences are packed with and attention is confined to; None: each sequence is one. ``capacity`` bounds the tokens
    of an expert; None: it takes all. ``hashing`` groups rows that travel as one; None: each travels by itself. ``sent``
    are the rows that go to experts over those that tokens chose, ``busiest`` is how many times the mean rank's rows the
    busiest rank of experts has, None where nothing is said of it, and ``most_busy`` how many times it can have.
    ``reached`` says how many parts of the experts a token reaches, where pairs were counted. ``encoder`` has the tokens
    of an encoder.
    """

    micro_batch: Number
    seq_len: Number
    cp: Number
    tp: Number
    ep: Number
    etp: Number
    shard: Number = 1
    expert_shard: Number = 1
    vocabulary: Number = 1
    vocab_multiple: int = 1
    product_input_bytes: int = 2
    ulysses: Number = 1
    documents: Documents | None = None
    capacity: Capacity | None = None
    hashing: TokenHashing | None = None
    sent: Number = 1.0
    busiest: Number | None = None
    most_busy: Number = np.inf
    ep_inside: Number = 1
    reached: Callable[[float], Number] | None = None
    state_share: tuple[int, ...] = ()
    encoder: EncoderLengths = NO_ENCODER

    def of(self, op: Operator) -> "LocalShape":
        """Return the shape with the length of what an operator processes: itself, or with an encoder's rows."""
        return self if op.tokens == "text" else replace(self, seq_len=self.encoder.tokens // op.merged)

    def keys(self, op: Attention) -> Number:
        """Keys of a sequence that an operator's attention chooses from."""
        return self.seq_len if op.keys == "text" else self.encoder.tokens

    @property
    def tokens(self) -> Number:
        """Tokens in the tensor region of a rank."""
        return self.micro_batch * self.seq_len / self.cp

    def sequence_tokens(self, mode: Mode) -> Number:
        """Tokens in the sequence region: cut over tp too with sequence parallelism."""
        return self.tokens / self.tp if mode.sequence_parallel else self.tokens

    @property
    def rows_as_routed(self) -> bool:
        """Return true if the number of rows depends on routing or hashing: a dropped token has no row."""
        return self.hashing is not None or (self.capacity is not None and not self.capacity.pad)

    def sent_rows(self, mode: Mode, experts_per_token: int) -> Number:
        """Rows that one rank has for experts; in the mean of ranks where that depends on routers."""
        rows = self.sequence_tokens(mode) * experts_per_token * self.sent
        return np.rint(rows) if self.capacity is not None and self.capacity.pad else rows

    def travelling_rows(self, mode: Mode, experts_per_token: int) -> Number:
        """Rows that one rank sends to experts: with hashing one for each bucket, as many as are assumed."""
        rows = self.sent_rows(mode, experts_per_token)
        return rows if self.hashing is None else rows * self.hashing.distinct

    def expert_rows(self, mode: Mode, experts_per_token: int) -> Number:
        """Rows that the experts of one rank process, when routing is balanced."""
        return self.travelling_rows(mode, experts_per_token) * self.etp

    def busiest_rows(self, mode: Mode, experts_per_token: int) -> Number:
        """Return the rows that the experts of the busiest rank process; the mean where its load is unknown."""
        return self.expert_rows(mode, experts_per_token) * (1.0 if self.busiest is None else self.busiest)

    @property
    def ring(self) -> Number:
        """Ranks of cp that each have a part of the sequence while they attend."""
        return self.cp / self.ulysses

    @property
    def vocabulary_cut(self) -> Number:
        """Ranks over which tables of the vocabulary are cut."""
        return self.vocabulary * self.tp

    def padded_vocab(self, vocab: int) -> Number:
        """Return the vocabulary rounded up to a multiple of ``vocab_multiple`` times its ranks."""
        multiple = self.vocab_multiple * self.vocabulary_cut
        return np.ceil(vocab / multiple) * multiple
