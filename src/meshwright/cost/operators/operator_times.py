"""Operator times by phase: F forward, I input gradient, W weight gradient, R = F again.

One small function per operator type, all of ``(operator, phase, local) → seconds``; a new operator is a function and
a line in ``RULES``. Byte counts per element are in ``cost/data/constants.csv`` with their origin. Shapes may be arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from meshwright.cost.operators.attended_positions import (
    mean_attended_positions,
    mean_attended_positions_of_rows,
)
from meshwright.cost.operators.kernel_and_collective_times import BYTES_16, HardwareTimes
from meshwright.model.operators.operator_types import (
    Activation,
    Attention,
    Dispatch,
    Embedding,
    ExpertActivation,
    ExpertLinear,
    ExpertLowRank,
    GatedInputNorm,
    GatedNorm,
    JoinImages,
    Linear,
    LinearAttention,
    Loss,
    LowRank,
    Norm,
    Operator,
    PatchEmbedding,
    PlaceImages,
    PositionBias,
    Residual,
    StateSpace,
)
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.model_states.state_elements import packed_bytes, parameter_elements
from meshwright.program.pass_items import Phase
from meshwright.program.synchronisation.token_hashing import ROW_PASSES
from meshwright.stack.device_recipe import DeviceRecipe
from meshwright.stack.stack import Stack
from meshwright.workload.base_types import QUANTISED


@dataclass(frozen=True, slots=True)
class Local:
    """The inputs of an operator's time other than the operator: hardware, local shape and mode."""

    forms: HardwareTimes
    shape: LocalShape
    mode: Mode
    stack: Stack

    def tokens(self, op: Operator) -> Number:
        """Tokens that a rank runs through the operator."""
        return self.shape.sequence_tokens(self.mode) if op.place == "sequence" else self.shape.tokens

    @property
    def device_recipe(self) -> DeviceRecipe:
        """The stack's recipe for this family of devices and precision."""
        return self.stack.device_recipe(self.forms.kernels.family, self.forms.precision)

    def moved(self, elements: Number, bytes_per_element: float) -> Number:
        """Return the seconds of a memory-bound pass, with the stack's factor."""
        return self.forms.pass_(elements * bytes_per_element * self.stack.elementwise_factor)


def operator_seconds(op: Operator, phase: Phase, local: Local) -> Number:
    """Time of one operator in one phase on one rank for one micro-batch; 0 for boundaries."""
    rule = RULES.get(type(op))
    if rule is None:
        return 0.0
    own = local if op.tokens == "text" else replace(local, shape=local.shape.of(op))
    return rule(op, "F" if phase == "R" else phase, own)


def _embedding(op: Embedding, phase: Phase, local: Local) -> Number:
    """Its gradient is a table of zeros with the rows of the tokens, which a kernel of its own adds to the buffer."""
    c = local.forms.constants
    if phase == "I":
        return 0.0
    rows = op.hidden * local.tokens(op)
    if phase == "F":
        return local.moved(rows, c["embedding_forward_bytes"])
    tables = (*op.parameters, *op.borrows)
    table = sum(parameter_elements(p, local.shape, expert=False) for p in tables)
    zeros = local.forms.pass_(BYTES_16 * table)
    _, added = _accumulation(table, local.shape.shard, local, fused=False)
    return local.moved(rows, c["embedding_backward_bytes"]) + zeros + added


def _norm(op: Norm, phase: Phase, local: Local) -> Number:
    if phase == "W":
        return 0.0
    fused = "" if local.stack.fused_norm else "eager_"
    name = f"norm_{fused}{'forward' if phase == 'F' else 'backward'}_bytes"
    cut = local.shape.tp if op.place == "tensor" else 1
    return local.moved(op.width * op.instances * local.tokens(op) / cut, local.forms.constants[name])


def _linear(op: Linear, phase: Phase, local: Local) -> Number:
    tp = local.shape.tp
    outputs: Number = op.outputs
    if op.parameters and op.parameters[0].vocab_dim is not None:
        outputs, tp = local.shape.padded_vocab(op.outputs), local.shape.vocabulary_cut
    inputs: Number = op.inputs / tp if op.split == "row" else op.inputs
    outputs = outputs / tp if op.split == "column" else outputs
    m = local.tokens(op)
    if phase == "F":
        return local.forms.gemm(m, inputs, outputs) + _dequantised(op, local)
    if phase == "I":
        return local.forms.gemm(m, outputs, inputs) + _dequantised(op, local)
    fused = local.stack.fused_gradient_accumulation
    inside, after = _accumulation(inputs * outputs, local.shape.shard, local, fused)
    return local.forms.gemm(inputs, m, outputs, inside) + after


def _patch_embedding(op: PatchEmbedding, phase: Phase, local: Local) -> Number:
    """Return the seconds of the product; patches have no gradient."""
    return 0.0 if phase == "I" else _linear(op, phase, local)


def _position_bias(op: PositionBias, phase: Phase, local: Local) -> Number:
    """Return the seconds of a pass over the scores of all heads, queries and keys."""
    scores = op.heads / local.shape.tp * local.shape.seq_len * local.shape.seq_len
    return 0.0 if phase == "I" else local.moved(scores, 2 * BYTES_16)


def _join_images(op: PlaceImages | JoinImages, phase: Phase, local: Local) -> Number:
    """Return the seconds of a pass that copies rows."""
    return 0.0 if phase == "W" else local.moved(op.width * local.tokens(op), 2 * BYTES_16)


def _dequantised(op: Operator, local: Local) -> Number:
    """Seconds to read an operator's quantised matrices and write them in 16 bits."""
    seconds: Number = 0.0
    for parameter in op.parameters:
        if parameter.storage in QUANTISED:
            elements = parameter_elements(parameter, local.shape, expert=op.place == "expert")
            packed = packed_bytes(parameter, elements, local.shape, expert=op.place == "expert")
            seconds = seconds + local.forms.pass_(packed + BYTES_16 * elements)
    return seconds


def _low_rank(op: LowRank, phase: Phase, local: Local) -> Number:
    """Two small products for each matrix; the second adds to what is there, which its kernel reads."""
    forms, tp = local.forms, local.shape.etp if isinstance(op, ExpertLowRank) else local.shape.tp
    inputs: Number = op.inputs / tp if op.split == "row" else op.inputs
    rank = op.rank * len(op.matrices)
    outputs = [matrix.outputs / (tp if op.split == "column" else 1) for matrix in op.matrices]
    product, rows = _product(op, local)
    if phase == "F":
        return product(inputs, rank, 0.0) + sum(
            product(op.rank, width, BYTES_16 * rows * width) for width in outputs
        )
    if phase == "I":
        return product(rank, inputs, BYTES_16 * rows * inputs) + sum(
            product(width, op.rank, 0.0) for width in outputs
        )
    parameters = sum(parameter_elements(p, local.shape, expert=op.place == "expert") for p in op.parameters)
    shard = local.shape.expert_shard if isinstance(op, ExpertLowRank) else local.shape.shard
    _, added = _accumulation(parameters, shard, local, fused=False)
    sides = [(inputs, rank), *((op.rank, width) for width in outputs)]
    if isinstance(op, ExpertLowRank):
        return added + sum(product(k, n, 0.0) for k, n in sides)
    return added + sum(forms.gemm(k, rows, n) for k, n in sides)


def _product(op: LowRank, local: Local) -> tuple[Callable[[Number, Number, Number], Number], Number]:
    """Return the seconds of a product with (k, n) that moves more bytes, and its rows on a rank."""
    if isinstance(op, ExpertLowRank):
        rows = local.shape.busiest_rows(local.mode, op.experts_per_token)
        experts = op.experts / local.shape.ep
        return lambda k, n, more: local.forms.grouped_gemm(rows, experts, k, n, more), rows
    tokens = local.tokens(op)
    return lambda k, n, more: local.forms.gemm(tokens, k, n, more), tokens


def _accumulation(parameters: Number, shard: Number, local: Local, fused: bool) -> tuple[Number, Number]:
    """Adding weight gradients to their buffer: bytes moved inside the product's kernel, and seconds of a pass after it.

    A fused kernel reads and writes the buffer in place of writing its result. Otherwise the result is read and the
    buffer read and written; where gradients are reduced at once only their shard is.
    """
    stack, scale = local.stack, local.forms.constants["gradient_accumulation"]
    if local.mode.reduce == "per-micro-batch":
        return 0.0, local.forms.pass_(scale * parameters / shard * 3 * stack.gradient_bytes)
    if fused:
        return scale * parameters * (2 * stack.gradient_bytes - BYTES_16), 0.0
    return 0.0, local.forms.pass_(scale * parameters * (BYTES_16 + 2 * stack.gradient_bytes))


def _attention(op: Attention, phase: Phase, local: Local) -> Number:
    c, shape = local.forms.constants, local.shape
    if phase == "W":
        return 0.0
    keys_per_query = shape.keys(op) / shape.seq_len
    widths = op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim) * keys_per_query
    elements = widths * shape.tokens / shape.tp
    reshape = local.moved(elements, c["reshape_bytes"])
    flash = (
        local.stack.attention.startswith("flash") and not op.biased
    )  # no such kernel adds scores with gradients
    written = local.mode.context.kind.writes_scores or not flash
    core = _unfused if written else _flash
    return reshape + core(op, phase, local, elements)


def _flash(op: Attention, phase: Phase, local: Local, elements: Number) -> Number:
    c, shape = local.forms.constants, local.shape
    mean = mean_attended_positions(op, shape.seq_len, True, shape.documents, shape.encoder)  # type: ignore[arg-type]
    positions = mean * (largest_share(op, local) if op.plain else 1.0)
    flops = op.flops_per_token(positions) * shape.tokens / shape.tp  # type: ignore[arg-type]
    output = op.heads * op.v_dim * shape.tokens / shape.tp
    moved = BYTES_16 * (elements + output)
    if phase == "F":
        return local.forms.flash(flops, moved, local.stack.attention)
    ratio = c["attention_backward_efficiency"]
    return local.forms.flash(flops * c["attention_backward_flops"], 2 * moved, local.stack.attention, ratio)


def largest_share(op: Attention, local: Local) -> Number:
    """Return the ratio of the largest rank's attention work to the mean: the last of contiguous pieces.

    Its rows are the last s/r: each sees all before it, s·(1 − 1/2r) positions in the mean, or those of the window or of
    documents. Head and tail are even without documents; with them they are taken to be, over many sequences.
    """
    shape = local.shape
    if local.mode.context.pieces == "head-tail":
        return 1.0
    ring, length = shape.ring, shape.seq_len
    mean = mean_attended_positions(op, length, True, shape.documents)  # type: ignore[arg-type]
    if shape.documents is not None:
        begin = length * (1 - 1 / ring)
        return mean_attended_positions_of_rows(shape.documents, length, op.window, begin) / mean  # type: ignore[arg-type]
    seen = length * (1 - 1 / (2 * ring))
    if op.window is not None:
        begin = length * (1 - 1 / ring)
        within = np.clip(op.window - begin, 0, length - begin)  # rows whose window is not full yet
        rows = length - begin
        seen = (within * (begin + within / 2) + (rows - within) * op.window) / rows
    return seen / mean


def _unfused(op: Attention, phase: Phase, local: Local, elements: Number) -> Number:
    """Two batched GEMMs (four backward) over all positions, and passes over the scores."""
    c, shape = local.forms.constants, local.shape
    rows = op.heads / shape.tp * shape.tokens
    keys = shape.encoder.attended(op.merge, op.side) if op.keys == "encoder" else shape.seq_len
    scores = rows * keys
    matmuls = local.forms.gemm(rows, op.qk_dim, keys) + local.forms.gemm(rows, keys, op.v_dim)
    per_score = c["score_forward_bytes"] if phase == "F" else c["score_backward_bytes"]
    per_score += c["score_dropout_bytes"] if op.dropout else 0.0
    per_score += 0.0 if local.stack.fused_softmax else c["score_eager_bytes"]
    passes = local.forms.pass_(scores * per_score, "score_pass_efficiency")
    return passes + (matmuls if phase == "F" else 2 * matmuls)


def _linear_attention(op: LinearAttention, phase: Phase, local: Local) -> Number:
    """Return the seconds of linear attention at FlashAttention 2 rates; five products backward, two forward.

    A guess: no kernel of it was measured. Lightning attention's is written in Triton as FlashAttention 2 can be.
    """
    c, shape = local.forms.constants, local.shape
    if phase == "W":
        return 0.0
    rows = op.width * shape.tokens / shape.tp
    flops, moved = 4.0 * (op.head_dim + op.block) * rows, BYTES_16 * 4 * rows
    activated = local.moved(3 * rows, c["reshape_bytes"])
    if phase == "F":
        return activated + local.forms.flash(flops, moved, "flash")
    ratio = c["attention_backward_efficiency"]
    return activated + local.forms.flash(flops * c["attention_backward_flops"], 2 * moved, "flash", ratio)


def _state_space(op: StateSpace, phase: Phase, local: Local) -> Number:
    """Return the seconds of filter and recurrence: passes over what is filtered, products of blocks at flash rates.

    A block of Q positions takes 2·Q·state FLOPs of scores and 2·Q·width of their products a token, and 4·state·width
    for the states. A guess: no kernel of it was measured. Mamba-2's is written in Triton as FlashAttention 2 can be.
    """
    c, shape = local.forms.constants, local.shape
    if phase == "W":
        return 0.0
    width, heads = op.width / shape.tp, op.heads / shape.tp
    keys = op.state * op.shared_groups(shape.tp)
    filtered = width + 2 * keys
    flops = (2.0 * op.block * (keys + width) + op.flops_per_state_element * op.state * width) * shape.tokens
    moved = BYTES_16 * (2 * width + heads + 2 * keys) * shape.tokens
    around = local.moved(filtered * shape.tokens, c["reshape_bytes"])
    if phase == "F":
        return around + local.forms.flash(flops, moved, "flash")
    ratio = c["attention_backward_efficiency"]
    return around + local.forms.flash(flops * c["attention_backward_flops"], 2 * moved, "flash", ratio)


def _gated_norm(op: GatedNorm, phase: Phase, local: Local) -> Number:
    """Return the seconds to read a row and its gate and write the result; backward as an activation."""
    elements = op.width * local.shape.tokens / local.shape.tp
    return _elementwise(elements, True, phase, local)


def _activation(op: Activation, phase: Phase, local: Local) -> Number:
    elements = op.width * local.tokens(op) / local.shape.tp
    return _elementwise(elements, op.gated, phase, local)


def _elementwise(elements: Number, gated: bool, phase: Phase, local: Local) -> Number:
    if phase == "W":
        return 0.0
    ratio = 1.0 if phase == "F" else local.forms.constants["activation_backward_ratio"]
    return local.moved(elements, (6 if gated else 4) * ratio)


def _residual(op: Residual, phase: Phase, local: Local) -> Number:
    if phase == "W":
        return 0.0
    name = "residual_forward_bytes" if phase == "F" else "residual_backward_bytes"
    return local.moved(op.width * local.tokens(op), local.forms.constants[name] - (0 if op.dropout else 1))


def _expert_linear(op: ExpertLinear, phase: Phase, local: Local) -> Number:
    c, shape = local.forms.constants, local.shape
    rows = shape.busiest_rows(local.mode, op.experts_per_token)
    inputs: Number = op.inputs / shape.etp if op.split == "row" else op.inputs
    outputs: Number = op.outputs / shape.etp if op.split == "column" else op.outputs
    experts = op.experts / shape.ep
    unsaid = np.minimum(c["expert_imbalance"], shape.most_busy) if shape.busiest is None else 1.0
    imbalance = 1.0 + (unsaid - 1.0) * (shape.ep > 1)
    if local.device_recipe.fuses_experts:
        imbalance = imbalance / c["fused_expert_rate"]
    if phase != "W":
        return imbalance * local.forms.grouped_gemm(rows, experts, inputs, outputs) + _dequantised(op, local)
    parameters = sum(parameter_elements(p, shape, expert=True) for p in op.parameters)
    fused = local.stack.fused_gradient_accumulation
    inside, after = _accumulation(parameters, shape.expert_shard, local, fused)
    return imbalance * local.forms.grouped_gemm(rows, experts, inputs, outputs, inside) + after


def _expert_activation(op: ExpertActivation, phase: Phase, local: Local) -> Number:
    if local.device_recipe.fuses_experts:
        return 0.0
    rows = local.shape.busiest_rows(local.mode, op.experts_per_token)
    return _elementwise(op.width * rows / local.shape.etp, op.gated, phase, local)


def _dispatch(op: Dispatch, phase: Phase, local: Local) -> Number:
    """Tokens are put in the order of their experts, and back in the combine: both are counted here."""
    if phase == "W" or local.device_recipe.fuses_experts:
        return 0.0
    rows = local.shape.sent_rows(local.mode, op.experts_per_token)
    seconds = local.moved(op.width * rows, local.forms.constants["permute_bytes"])
    return seconds + hashing_seconds(op, phase, local)


def hashing_seconds(op: Dispatch, phase: Phase, local: Local) -> Number:
    """Return the seconds for a layer's buckets of similar rows: projections, means and sums; 0 without hashing.

    Ignored: the sort of codes, of few numbers for each row.
    """
    hashing = local.shape.hashing
    if hashing is None or phase == "W":
        return 0.0
    rows = op.width * local.shape.sent_rows(local.mode, op.experts_per_token)
    seconds = local.moved(rows, BYTES_16 * ROW_PASSES[phase])
    if phase == "F":
        seconds = seconds + local.forms.gemm(local.tokens(op), op.width, hashing.hashes * hashing.width)
    return seconds


def _loss(op: Loss, phase: Phase, local: Local) -> Number:
    if phase == "W":
        return 0.0
    cut = local.shape.vocabulary_cut if local.stack.loss_vocab_parallel else local.shape.vocabulary
    logits = local.shape.padded_vocab(op.vocab) * local.shape.tokens / cut
    name = "loss_forward_bytes" if phase == "F" else "loss_backward_bytes"
    return local.forms.pass_(logits * local.forms.constants[name])


RULES: dict[type[Operator], Callable[[Any, Phase, Local], Number]] = {
    Embedding: _embedding,
    Norm: _norm,
    Linear: _linear,
    Attention: _attention,
    LinearAttention: _linear_attention,
    StateSpace: _state_space,
    GatedNorm: _gated_norm,
    GatedInputNorm: _gated_norm,
    PatchEmbedding: _patch_embedding,
    PositionBias: _position_bias,
    PlaceImages: _join_images,
    JoinImages: _join_images,
    Activation: _activation,
    Residual: _residual,
    ExpertLinear: _expert_linear,
    LowRank: _low_rank,
    ExpertLowRank: _low_rank,
    ExpertActivation: _expert_activation,
    Dispatch: _dispatch,
    Loss: _loss,
}
