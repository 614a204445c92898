"""Model and hardware FLOPs per token, and the utilisations made of them.

MFU counts 6·N_active + 12·layers·heads·head_dim·seq per token: N_active without the input embedding table (a tied table
counts once, as the head), no causal discount, no recomputation; latent attention takes the mean of its query-key and
value widths, a sliding layer min(seq, 2·window) positions (the convention of PaLM, arXiv 2204.02311, appendix B, made
exact for these cases), linear attention head_dim of them: what its recurrence takes; Mamba-2 counts its own. Where
sequences are packed with documents, twice what a token attends to stands for seq: Σ l² / Σ l of documents of l tokens
that are not cut. Frozen parameters count 4 in place of 6: they have no weight gradient. Parameters of an encoder count
once for each of its tokens for one token of text. ``mfu_causal`` counts only unmasked positions; HFU adds what is
recomputed. Without backward passes the two forward passes of a token count, two thirds of this.
"""

from meshwright.cost.operators.attended_positions import mean_attended_positions
from meshwright.model.graph import Block, ModelGraph, active_parameters, rows_per_token
from meshwright.model.operators.operator_types import Attention, LinearAttention, PositionBias, StateSpace
from meshwright.workload.encoder_lengths import NO_ENCODER, EncoderLengths
from meshwright.workload.packed_documents import Documents

FORWARD_PART = 1 / 3
"""The forward pass's part of a token's training FLOPs."""


def model_flops_per_token(
    model: ModelGraph,
    seq_len: int,
    *,
    causal: bool,
    documents: Documents | None = None,
    encoder: EncoderLengths = NO_ENCODER,
) -> float:
    """Training FLOPs of one token without recomputation."""
    active: float = model.parameters_active - model.parameters_embedding
    if model.architecture.tied_embeddings:
        active += model.architecture.vocab * model.architecture.hidden
    active += _further_rows(model, seq_len, encoder)
    frozen = sum(
        model.blocks[index].frozen_parameters_active * repeat
        for index, repeat in model.chain
        if model.blocks[index].kind != "embed"
    )
    return (
        6.0 * active
        - 2.0 * frozen
        + 3.0
        * sum(
            _attention_flops(model.blocks[index], seq_len, causal, documents, encoder) * repeat
            for index, repeat in model.chain
        )
    )


def recomputed_flops_per_token(
    model: ModelGraph,
    seq_len: int,
    *,
    causal: bool,
    documents: Documents | None = None,
    encoder: EncoderLengths = NO_ENCODER,
) -> float:
    """Forward FLOPs of one token that the backward pass of a planned model runs again."""
    return sum(
        op.flops_per_token(mean_attended_positions(op, seq_len, causal, documents, encoder))
        * rows_per_token(op, seq_len, encoder)
        * repeat
        for index, repeat in model.chain
        for op in model.blocks[index].operators
        if model.blocks[index].recomputes(op.recompute)
    )


def _further_rows(model: ModelGraph, seq_len: int, encoder: EncoderLengths) -> float:
    """Return the parameters that an encoder's tokens pass through for one token of text, beyond once each."""
    return sum(
        active_parameters(op) * (rows_per_token(op, seq_len, encoder) - 1) * repeat
        for index, repeat in model.chain
        for op in model.blocks[index].operators
        if op.tokens == "encoder" and not isinstance(op, PositionBias)
    )


def _attention_flops(
    block: Block, seq_len: int, causal: bool, documents: Documents | None, encoder: EncoderLengths
) -> float:
    """Forward FLOPs of the attention cores of a block."""
    return sum(
        op.flops_per_token(mean_attended_positions(op, seq_len, causal, documents, encoder))
        * rows_per_token(op, seq_len, encoder)
        for op in block.operators
        if isinstance(op, Attention | LinearAttention | StateSpace)
    )
