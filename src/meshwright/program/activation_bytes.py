"""Activation memory: the bytes that a forward pass keeps for the backward pass, tensor by tensor.

Follows Korthikanti et al. (arXiv 2205.05198, section 4.1) operator by operator, so that its
34·s·b·h + 5·a·s²·b bytes of a GPT layer come out as a sum (test); with flash attention the score matrix is
replaced by one statistic per row. Bytes are those of one rank and one micro-batch and accept arrays.

What is recomputed is not kept: an operator's inputs are dropped when the operator before it is run again, what it
keeps besides when it is run again itself. Only the attention core's output stays (Megatron-Core discards outputs of
every recomputed set but ``core_attn``). Everything is held until the end of B. Where the backward pass is split, I
frees what only the input gradient needed (norm and activation inputs, scores), and W waits with the inputs of linear
operators, recomputed ones included, and the gradients of their outputs. Operators whose weights are ``frozen`` keep no
inputs for them; their adapters do.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.model.graph import Block
from meshwright.model.operators.data_flow import sources
from meshwright.model.operators.operator_types import (
    Activation,
    Attention,
    Combine,
    Dispatch,
    Embedding,
    EnterTensor,
    ExpertActivation,
    ExpertLinear,
    ExpertLowRank,
    GatedInputNorm,
    GatedNorm,
    LeaveTensor,
    Linear,
    LinearAttention,
    Loss,
    LowRank,
    Norm,
    Operator,
    PatchEmbedding,
    PositionBias,
    Residual,
    SharedValue,
    StateSpace,
)
from meshwright.program.context_parallel.attention_collectives import attention_exchange_buffer_bytes
from meshwright.program.context_parallel.linear_attention_collectives import gathered_bytes, state_bytes
from meshwright.program.local_shape import ACTIVATION_BYTES, STATISTIC_BYTES, LocalShape, Mode, Number
from meshwright.program.model_states.state_elements import parameter_elements
from meshwright.program.operator_recompute import keeps_products, kept_product_bytes
from meshwright.stack.stack import Stack
from meshwright.workload.base_types import QUANTISED

MASK_BYTES = 1
EAGER_NORM_BYTES = 8
"""What a norm of separate kernels keeps besides its input: a copy and the normalised values, both in fp32."""
EAGER_SOFTMAX_BYTES = 4
"""What a softmax of separate kernels keeps besides its result: the result in fp32."""
KEEPS_OUTPUT = ("core_attn",)


@dataclass(frozen=True, slots=True)
class SavedTensors:
    """The tensors that an operator keeps from a forward pass: its inputs, and tensors made inside."""

    inputs: bool
    inner: bool


def saved_tensors_by_operator(block: Block) -> dict[str, SavedTensors]:
    """Return the tensors that each operator of a block keeps from F to the backward pass, by name."""
    if block.full_recompute:
        first = block.operators[0]
        return {op.name: SavedTensors(op is first, False) for op in block.operators}
    result = {}
    dropped: dict[str, bool] = defaultdict(bool)  # the block's input and values of the stage are not
    for op, of in zip(block.operators, sources(block.operators).values(), strict=True):
        of = of[1:] if isinstance(op, LowRank) else of  # of the result that it adds to it keeps nothing
        without = (all if isinstance(op, EnterTensor) else any)([dropped[source] for source in of])
        again = block.recomputes(op.recompute)
        result[op.name] = SavedTensors(not without and (again or not _drops_input(op)), not again)
        if isinstance(op, EnterTensor | LeaveTensor):
            dropped[op.name] = without and isinstance(op, EnterTensor)
        else:
            dropped[op.name] = drops_output(op, block)
    return result


def _drops_input(op: Operator) -> bool:
    """Return true for a product with frozen weights: its gradient needs no input."""
    return op.frozen and isinstance(op, Linear | ExpertLinear)


def drops_output(op: Operator, block: Block) -> bool:
    """Return true if the result of an operator of a block is recomputed instead of kept."""
    return block.recomputes(tuple(name for name in op.recompute if name not in KEEPS_OUTPUT))


def kept_bytes(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes kept from F to the backward pass by one block for one micro-batch; none where no backward pass follows."""
    if stack.optimizer.forward_only:
        return 0
    if block.full_recompute:
        return block_input_bytes(block, shape, mode)
    if keeps_products(block, stack):
        return block_input_bytes(block, shape, mode) + kept_product_bytes(block, shape, mode)
    kept: Number = 0
    rules = saved_tensors_by_operator(block)
    adapted = {op.adapted for op in block.operators if isinstance(op, LowRank) and rules[op.name].inputs}
    for op in block.operators:
        if rules[op.name].inputs and op.name not in adapted:  # an adapter keeps the same tensor
            kept = kept + input_bytes(op, shape, mode, stack)
        if isinstance(op, Dispatch) and rules[op.name].inputs and _alone_with_tokens(op, block):
            kept = kept + ACTIVATION_BYTES * op.width * shape.sequence_tokens(mode)
        if rules[op.name].inner:
            kept = kept + inner_bytes(op, shape, mode, stack)
    return kept


def _alone_with_tokens(dispatch: Dispatch, block: Block) -> bool:
    """Return true if a recomputed dispatch keeps the tokens that no frozen router, and no adapter, keeps as well."""
    of = sources(block.operators)
    tokens = of[dispatch.name][0]
    readers = [op for op in block.operators if tokens in of[op.name] and isinstance(op, Linear | LowRank)]
    return all(op.frozen for op in readers) and block.recomputes(dispatch.recompute)


def kept_for_weights(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes kept from I to W by one block for one micro-batch; the head's W is part of I
    (``program/lowering/block_items.py``)."""
    if stack.optimizer.forward_only:
        return 0
    kept: Number = 0
    gathered = replace(mode, sequence_parallel=False)
    regathers = mode.sequence_parallel and stack.tp_regathers_input
    for op in () if block.kind == "head" else block.operators:
        if op.frozen:
            continue
        if isinstance(op, Linear | ExpertLinear | LowRank):
            # the input that was gathered during I stays gathered until W
            of = gathered if op.place == "tensor" else mode
            kept = kept + input_bytes(op, shape, of, stack) + _output_gradient(op, shape.of(op), mode)
            # x·Aᵀ and its gradient
            kept = kept + (2 * inner_bytes(op, shape, mode, stack) if isinstance(op, LowRank) else 0)
            if isinstance(op, Linear) and op.keeps_part and regathers:
                kept = kept + shape.product_input_bytes * op.inputs * shape.sequence_tokens(mode)
        elif isinstance(op, Embedding):
            kept = kept + ACTIVATION_BYTES * op.hidden * _tokens(op, shape.of(op), mode)
    return kept


def _output_gradient(op: Linear | ExpertLinear | LowRank, shape: LocalShape, mode: Mode) -> Number:
    if isinstance(op, ExpertLinear | ExpertLowRank):
        rows = shape.busiest_rows(mode, op.experts_per_token)
        return ACTIVATION_BYTES * op.outputs * rows / (shape.etp if op.split == "column" else 1)
    tokens = shape.tokens if op.place == "tensor" else shape.sequence_tokens(mode)
    return ACTIVATION_BYTES * op.outputs * tokens / (shape.tp if op.split == "column" else 1)


def _everything(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    total: Number = 0
    for op in block.operators:
        inputs = (
            0
            if _drops_input(op) and not block.recomputes(op.recompute)
            else input_bytes(op, shape, mode, stack)
        )
        total = total + inputs + inner_bytes(op, shape, mode, stack)
    return total


def working_bytes(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes that exist only while a block's backward pass runs: what recomputation and other ranks bring back.

    Without backward passes those of its forward pass: at most all that operators read and make.
    """
    brought = sum(gathered_for_backward_bytes(op, shape, mode) for op in block.operators)
    brought = brought + dequantised_bytes(block, shape)
    return brought + _everything(block, shape, mode, stack) - kept_bytes(block, shape, mode, stack)


def gathered_for_backward_bytes(op: Operator, shape: LocalShape, mode: Mode) -> Number:
    """Bytes that an operator's backward pass has on a rank of what belongs to others."""
    if isinstance(op, Attention):
        return attention_exchange_buffer_bytes(op, shape, mode) + _scores_again(op, shape.of(op))
    return gathered_bytes(op, shape, mode) if isinstance(op, LinearAttention) else 0


def _scores_again(op: Attention, shape: LocalShape) -> Number:
    """Return the bytes of scores and their gradient in fp32, and of the sum of that over sequences."""
    if not op.biased:
        return 0
    of_heads = 4 * op.heads / shape.tp * shape.seq_len * shape.keys(op)
    return (2 * shape.micro_batch + 1) * of_heads


def dequantised_bytes(block: Block, shape: LocalShape) -> Number:
    """Bytes of a block's largest quantised matrix in 16 bits: one at a time is dequantised."""
    largest: Number = 0
    for op in block.operators:
        for parameter in op.parameters:
            if parameter.storage in QUANTISED:
                elements = parameter_elements(parameter, shape, expert=op.place == "expert")
                largest = np.maximum(largest, ACTIVATION_BYTES * elements)
    return largest


def logit_bytes(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes of a block's kept logits, which are free as soon as the backward pass of the loss has ended."""
    if stack.optimizer.forward_only:
        return 0
    return sum(inner_bytes(op, shape, mode, stack) for op in block.operators if isinstance(op, Loss))


def block_input_bytes(block: Block, shape: LocalShape, mode: Mode) -> Number:
    """Return the bytes of the residual stream at the entry of a block."""
    first = next(op for op in block.operators if isinstance(op, Norm | Residual))
    return ACTIVATION_BYTES * first.width * shape.of(first).sequence_tokens(mode)


def input_bytes(op: Operator, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes of the inputs that an operator keeps, or of what it keeps in their stead."""
    rule = _INPUTS.get(type(op))
    return rule(op, shape.of(op), mode, stack) if rule else 0


def inner_bytes(op: Operator, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes of what an operator makes and keeps inside: scores, masks, statistics, logits."""
    rule = _INNER.get(type(op))
    return rule(op, shape.of(op), mode, stack) if rule else 0


def _tokens(op: Operator, shape: LocalShape, mode: Mode) -> Number:
    return shape.sequence_tokens(mode) if op.place == "sequence" else shape.tokens


def _norm(op: Norm, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    cut = shape.tp if op.place == "tensor" else 1
    size = ACTIVATION_BYTES + (0 if stack.fused_norm else EAGER_NORM_BYTES)
    return size * op.width * op.instances * _tokens(op, shape, mode) / cut


def _linear(op: Linear | LowRank, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    if not op.saves_input:
        return 0
    if op.split == "row":
        return shape.product_input_bytes * op.inputs * shape.tokens / shape.tp
    gathered = op.place == "tensor" and not (mode.sequence_parallel and stack.tp_regathers_input)
    own = (gathered and mode.sequence_parallel) or shape.product_input_bytes != ACTIVATION_BYTES
    if isinstance(op, Linear) and op.shared_input and not own:
        return 0
    tokens = shape.tokens if gathered else shape.sequence_tokens(mode)
    return shape.product_input_bytes * op.inputs * tokens


def _patches(op: PatchEmbedding, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of patches in 16 bits."""
    return ACTIVATION_BYTES * op.inputs * shape.sequence_tokens(mode)


def _shared_value(op: SharedValue, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    return ACTIVATION_BYTES * op.width * shape.sequence_tokens(mode)


def _position_bias(op: PositionBias, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of a score for each head, query and key, the same for all sequences."""
    return ACTIVATION_BYTES * op.heads / shape.tp * shape.seq_len * shape.seq_len


def _attention_inputs(op: Attention, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    keys_per_query = shape.keys(op) / shape.seq_len
    width = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim) * keys_per_query
    return ACTIVATION_BYTES * width * shape.tokens / shape.tp


def _attention_inner(op: Attention, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Statistics of rows, or scores; and its output where that leaves for other ranks before the next operator."""
    rows = op.heads * shape.tokens / shape.tp
    output = ACTIVATION_BYTES * op.v_dim * rows * (np.asarray(shape.ulysses) > 1)
    if mode.context.kind.writes_scores:
        return output + np.where(shape.ring > 1, ACTIVATION_BYTES * shape.seq_len, STATISTIC_BYTES) * rows
    if stack.attention.startswith("flash"):
        return output + STATISTIC_BYTES * rows
    attended = shape.encoder.attended(op.merge, op.side) if op.keys == "encoder" else shape.seq_len
    return output + score_bytes(op, stack) * rows * attended


def _linear_attention_inputs(op: LinearAttention, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of queries, keys and values before their activation."""
    return ACTIVATION_BYTES * 3 * op.width * shape.tokens / shape.tp


def _linear_attention_inner(op: LinearAttention, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of the states that enter this rank's pieces; states within a piece are recomputed."""
    return state_bytes(op, shape, mode)


def _state_space_inputs(op: StateSpace, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of x and Δ of this rank's heads, and of B and C, before filter and activation."""
    shared = 2 * op.state * op.shared_groups(shape.tp)
    return ACTIVATION_BYTES * ((op.width + op.heads) / shape.tp + shared) * shape.tokens


def _gated_norm_inputs(op: GatedNorm, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of the norm's input and the gate."""
    return ACTIVATION_BYTES * 2 * op.width * shape.tokens / shape.tp


def _gated_norm_inner(op: GatedNorm, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Rows' sums of squares."""
    return STATISTIC_BYTES * shape.tokens


def score_bytes(op: Attention, stack: Stack) -> int:
    """Bytes per score: result of the softmax, result of dropout (a copy even at rate 0), and dropout's mask."""
    eager = 0 if stack.fused_softmax else EAGER_SOFTMAX_BYTES
    return 2 * ACTIVATION_BYTES + eager + (MASK_BYTES if op.dropout else 0)


def _activation(op: Activation, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    return ACTIVATION_BYTES * op.width * (2 if op.gated else 1) * shape.tokens / shape.tp


def _residual(op: Residual, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    return MASK_BYTES * op.width * shape.sequence_tokens(mode) if op.dropout else 0


def _low_rank(op: LowRank, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of the input that it shares with its operator, which keeps none."""
    if isinstance(op, ExpertLowRank):
        return _expert_linear(op, shape, mode, stack)
    return _linear(op, shape, mode, stack)


def _low_rank_inner(op: LowRank, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of x·Aᵀ: as many as ``rank`` for each token and matrix, partial sums where A is cut."""
    rows = _tokens(op, shape, mode)
    if isinstance(op, ExpertLowRank):
        rows = shape.busiest_rows(mode, op.experts_per_token)
    return ACTIVATION_BYTES * op.rank * len(op.matrices) * rows


def _expert_linear(op: ExpertLinear | ExpertLowRank, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    rows = shape.busiest_rows(mode, op.experts_per_token)
    return shape.product_input_bytes * op.inputs * rows / (shape.etp if op.split == "row" else 1)


def _expert_activation(op: ExpertActivation, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    rows = shape.busiest_rows(mode, op.experts_per_token)
    return ACTIVATION_BYTES * op.width * (2 if op.gated else 1) * rows / shape.etp


def _combine(op: Combine, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Return the bytes of the experts' results, none if their inputs were weighted instead.

    Deduplicated copies are weighted on the experts' ranks.
    """
    if stack.weights_expert_activations:
        return 0
    if stack.deduplicates_exchange:
        return ACTIVATION_BYTES * op.width * shape.busiest_rows(mode, op.experts_per_token) / shape.etp
    return ACTIVATION_BYTES * op.width * shape.sent_rows(mode, op.experts_per_token)


def _loss(op: Loss, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    cut = shape.vocabulary_cut if stack.loss_vocab_parallel else shape.vocabulary
    return stack.logit_bytes * shape.padded_vocab(op.vocab) * shape.tokens / cut


_Rule = Callable[[Any, LocalShape, Mode, Stack], Number]
_INPUTS: dict[type[Operator], _Rule] = {
    Norm: _norm,
    Linear: _linear,
    Attention: _attention_inputs,
    LinearAttention: _linear_attention_inputs,
    StateSpace: _state_space_inputs,
    GatedNorm: _gated_norm_inputs,
    GatedInputNorm: _gated_norm_inputs,
    Activation: _activation,
    ExpertLinear: _expert_linear,
    PatchEmbedding: _patches,
    LowRank: _low_rank,
    ExpertLowRank: _low_rank,
    ExpertActivation: _expert_activation,
    Combine: _combine,
}
_INNER: dict[type[Operator], _Rule] = {
    Attention: _attention_inner,
    LinearAttention: _linear_attention_inner,
    GatedNorm: _gated_norm_inner,
    GatedInputNorm: _gated_norm_inner,
    Residual: _residual,
    SharedValue: _shared_value,
    PositionBias: _position_bias,
    LowRank: _low_rank_inner,
    ExpertLowRank: _low_rank_inner,
    Loss: _loss,
}
