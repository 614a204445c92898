"""The model noun: blocks of operators with repeat counts, in the order in which a token meets them.

``ModelGraph.chain`` lists (block index, repeat count): DeepSeek-V3 is embed ×1, dense ×3, moe ×58, head ×1, T5-11B
embed ×1, encoder ×24, encoder-end ×1, dense ×24, head ×1. The blocks of an encoder stand behind the embedding.
Only chains are accepted now; ``edges`` of other shapes are refused when a graph is read.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from meshwright.model.architecture import Architecture
from meshwright.model.operators.operator_types import (
    Attention,
    ExpertLinear,
    ExpertLowRank,
    Operator,
    PatchEmbedding,
)
from meshwright.workload.encoder_lengths import NO_ENCODER, EncoderLengths

BlockKind = Literal["embed", "encoder", "encoder-end", "layer", "head"]

ENCODER_KINDS = ("encoder", "encoder-end")


Recomputed = str | tuple[str, ...]
"""A block's recomputation in the backward pass: ``full``, or the names of sets
(``model/operators/recompute_sets.py``), perhaps none.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A named chain of operators. Equal blocks are one object, repeated.

    ``recompute`` is set by a plan; it is empty in a model by itself.
    """

    name: str
    kind: BlockKind
    operators: tuple[Operator, ...]
    recompute: Recomputed = ()

    @property
    def predicts_further(self) -> bool:
        """True for multi-token prediction: the block has its own stream and loss."""
        return any(op.begins_stream for op in self.operators)

    @property
    def full_recompute(self) -> bool:
        """True if the backward pass recomputes the whole block."""
        return self.recompute == "full"

    def recomputes(self, sets: tuple[str, ...]) -> bool:
        """Return whether the backward pass recomputes an operator that belongs to ``sets``."""
        return self.full_recompute or any(name in self.recompute for name in sets)

    @property
    def publishes(self) -> bool:
        """True if the block's result is a value of the stage, and the stream passes it by: blocks of an encoder."""
        return bool(self.operators[-1].publishes)

    @property
    def parameters(self) -> int:
        """Elements of all parameters."""
        return sum(p.elements for op in self.operators for p in op.parameters)

    @property
    def parameters_active(self) -> int:
        """Elements that one token passes through: of E experts only its k count."""
        return sum(map(active_parameters, self.operators))

    @property
    def frozen_parameters_active(self) -> int:
        """Elements of frozen parameters that one token passes through."""
        return sum(
            _active_part(op, sum(p.elements for p in op.parameters if not p.trained)) for op in self.operators
        )

    def flops_per_token_forward(
        self, seq_len: int, *, causal: bool, encoder: EncoderLengths = NO_ENCODER
    ) -> float:
        """Return the forward FLOPs of one token of text at ``seq_len``, and of the encoder's tokens for it.

        Causal counts only the positions that are not masked.
        """
        return sum(
            op.flops_per_token(attended_positions(op, seq_len, causal, encoder))
            * rows_per_token(op, seq_len, encoder)
            for op in self.operators
        )


def active_parameters(op: Operator) -> int:
    """Return the elements of an operator's parameters that one token passes through."""
    return _active_part(op, sum(p.elements for p in op.parameters))


def _active_part(op: Operator, elements: int) -> int:
    if isinstance(op, ExpertLinear | ExpertLowRank):
        return elements * op.experts_per_token // op.experts
    return elements


@dataclass(frozen=True)
class ModelGraph:
    """A model as planners see it. ``blocks`` are the distinct ones, ``chain`` their order with repeats.

    ``vocabulary`` lists the blocks of a vocabulary that all pipeline ranks share
    (``model/transforms/vocabulary_parallel.py``); they are not in the chain.
    """

    architecture: Architecture
    blocks: tuple[Block, ...]
    chain: tuple[tuple[int, int], ...]
    source: str = field(default="")
    vocabulary: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The model's name, as in the zoo or in its configuration."""
        return self.architecture.name

    @cached_property
    def layer_blocks(self) -> tuple[int, ...]:
        """Block index of every decoder layer, in order (embed and head left out)."""
        return tuple(
            index for index, repeat in self.chain if self.blocks[index].kind == "layer" for _ in range(repeat)
        )

    @property
    def embed(self) -> Block:
        """The block that turns token ids into hidden states."""
        return self.blocks[self.chain[0][0]]

    @property
    def head_block(self) -> int | None:
        """The index of the head; None if the last block is another one."""
        return self.chain[-1][0] if self.head.kind == "head" else None

    @property
    def head(self) -> Block:
        """The block that ends in the loss."""
        return self.blocks[self.chain[-1][0]]

    @cached_property
    def encoder_chain(self) -> tuple[tuple[int, int], ...]:
        """The blocks of the encoder with their repeat counts, in order."""
        return tuple(run for run in self.chain if self.blocks[run[0]].kind in ENCODER_KINDS)

    @cached_property
    def encoder_blocks(self) -> tuple[int, ...]:
        """Block index of every block of the encoder, in order; they stand on the embedding's stage."""
        return tuple(index for index, repeat in self.encoder_chain for _ in range(repeat))

    @cached_property
    def parameters(self) -> int:
        """All parameters; a table that several blocks share counts once."""
        total = sum(self.blocks[index].parameters * repeat for index, repeat in self.chain)
        return total - self._copied_elements

    @cached_property
    def parameters_active(self) -> int:
        """Parameters that one token passes through, the embedding table included once."""
        total = sum(self.blocks[index].parameters_active * repeat for index, repeat in self.chain)
        return total - self._copied_elements

    @cached_property
    def parameters_embedding(self) -> int:
        """Parameters of the input embedding: the token table, learned positions, scores by relative position."""
        looked_up = (op for op in self.embed.operators if not isinstance(op, PatchEmbedding))
        return sum(p.elements for op in looked_up for p in op.parameters)

    @property
    def tied_gradients(self) -> bool:
        """True if the embedding and the model's end train one table: by a tied head, or multi-token prediction."""
        trained = any(p.trained for op in self.embed.operators for p in op.parameters)
        copied = self.architecture.tied_embeddings or self.architecture.next_token_layers > 0
        return copied and trained and not self.vocabulary

    @property
    def tied_head(self) -> bool:
        """True if the embedding and the head train one table, or both hold it as a unit of frozen parameters has it."""
        stored = any(p.storage is not None for op in self.embed.operators for p in op.parameters)
        shared = self.tied_gradients or (stored and not self.vocabulary)
        return self.architecture.tied_embeddings and shared

    @property
    def _copied_elements(self) -> int:
        """Elements of the embedding's copies: a tied head's, or multi-token prediction's."""
        arch = self.architecture
        return arch.vocab * arch.hidden * (arch.tied_embeddings or arch.next_token_layers > 0)

    def flops_per_token_forward(
        self, seq_len: int, *, causal: bool = False, encoder: EncoderLengths = NO_ENCODER
    ) -> float:
        """Return the forward FLOPs per token, including the head; embedding look-up is free."""
        return sum(
            self.blocks[index].flops_per_token_forward(seq_len, causal=causal, encoder=encoder) * repeat
            for index, repeat in self.chain
        )

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Return the key-value cache of one token of text over all layers, before windows cap it."""
        return bytes_per_element * sum(
            op.kv_width * repeat
            for index, repeat in self.chain
            for op in self.blocks[index].operators
            if isinstance(op, Attention) and op.keys == "text"
        )


def rows_per_token(op: Operator, seq_len: int, encoder: EncoderLengths) -> float:
    """Return an operator's rows for one token of text: 1, or an encoder's."""
    return 1.0 if op.tokens == "text" else encoder.tokens / op.merged / seq_len


def attended_positions(
    op: Operator, seq_len: int, causal: bool, encoder: EncoderLengths = NO_ENCODER
) -> float:
    """Return the mean number of positions a token attends to: all, the causal half, or a window's share.

    Causal without a window: s/2. Causal, window w < s: (w²/2 + (s−w)·w)/s. Without the causal discount a
    sliding layer counts min(s, 2w) (the MFU convention of docs/metrics.md). An encoder's tokens are attended to from
    both sides.
    """
    if isinstance(op, Attention) and op.keys == "encoder":
        return encoder.attended(op.merge, op.side)
    window = op.window if isinstance(op, Attention) else None
    if not causal:
        return float(seq_len if window is None else min(seq_len, 2 * window))
    if window is None or window >= seq_len:
        return seq_len / 2
    return window - window * window / (2 * seq_len)
