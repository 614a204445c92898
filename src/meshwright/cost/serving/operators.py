"""Seconds of the operators of one iteration of a replica, on one rank.

An iteration has n_d sequences that decode with a context c on each rank of attention_dp, and n_p prompt tokens, which
attend to some positions in the mean, on some of them. The slowest has m = n_p/cp + n_d rows in every product; the
N = n_p·ranks with prompts + n_d·attention_dp·cp rows of all meet the experts. One small function for each operator
type, all of ``(operator, local) → seconds``; a new operator is a function and a line in ``RULES``. The model's graph
says which operators there are (``model/operators/``).

    attention over the cache   t0 + max(n_d·c·bytes/(η·BW), FLOPs/(e·P)); latent: 2·heads·(kv_width + kv_rank) each
    attention of prompts       the flash kernel of training, 2·heads·(qk + v) a position
    experts                    rows N·k/ep of the busiest rank, over its expected distinct experts
    tp                         an all-reduce after attention and after the feed-forward part, m·hidden in 16 bit
    attention_dp               all-gather and reduce-scatter of all rows, or all-to-all of copies: the quicker,
                               sent in 8 bit where weights are, and back in 16
    head                       rows of sequences whose next token is asked for, not of all prompt tokens

The busiest of ep ranks has μ + √(2·μ·ln ep) rows, the usual bound of the largest of ep Poisson counts of mean μ.
Ignored: imbalance of routers beyond chance, overlap of collectives with products.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.serving.distinct_expert_count import expected_distinct_experts
from meshwright.cost.serving.hardware_times import ACTIVATION_BYTES, ServingTimes
from meshwright.model.architecture import Architecture
from meshwright.model.operators.operator_types import (
    Activation,
    Attention,
    Combine,
    Dispatch,
    Embedding,
    ExpertActivation,
    ExpertLinear,
    GatedInputNorm,
    GatedNorm,
    LeaveTensor,
    Linear,
    LinearAttention,
    Loss,
    Norm,
    Operator,
    StateSpace,
)
from meshwright.program.local_shape import Number
from meshwright.program.serving.kv_bytes import cached_elements, cached_tokens, operator_cache_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import WEIGHT_BITS, StorageFormats

FLASH = "flash3"
LOGIT_BYTES = 4
LOGIT_PASSES = 3
"""Passes over the logits: to fp32, softmax, and choice of a token."""
NORM_BYTES = 8
"""A norm reads its input and the stream, and writes the new stream and its result."""
GATED_BYTES, PLAIN_BYTES = 6, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationLoad:
    """The tokens of one iteration on one rank of attention_dp.

    ``prompt_tokens`` attend to ``prompt_positions`` in the mean and end ``prompts`` prompts, on ``prompt_ranks`` of
    attention_dp; ``sequences`` decode a token each with ``context`` tokens before it, on all of them.
    """

    prompt_tokens: Number = 0.0
    prompt_positions: Number = 0.0
    prompts: Number = 0.0
    prompt_ranks: Number = 1.0
    sequences: Number = 0.0
    context: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLocal:
    """The inputs of an operator's time other than the operator. ``expert_shares``: of choices, None: all alike."""

    times: ServingTimes
    degrees: ReplicaDegrees
    load: IterationLoad
    formats: StorageFormats
    arch: Architecture
    expert_shares: tuple[float, ...] | None = None

    @property
    def rows(self) -> Number:
        """Rows of a rank's products."""
        return self.load.prompt_tokens / self.degrees.cp + self.load.sequences

    @property
    def expert_groups(self) -> Number:
        """Ranks that bring different rows to the experts."""
        return self.degrees.attention_dp * self.degrees.cp

    @property
    def expert_tokens(self) -> Number:
        """Rows of all ranks that meet the experts."""
        load = self.load
        return load.prompt_tokens * np.maximum(load.prompt_ranks, 1.0) + load.sequences * self.expert_groups

    @property
    def logit_rows(self) -> Number:
        """Rows whose next token is asked for."""
        return self.load.sequences + self.load.prompts

    def busiest_rank(self, experts_per_token: int, experts: int) -> tuple[Number, Number]:
        """Return the rows of the busiest rank of ep, and the experts there that have any."""
        ep = np.asarray(self.degrees.ep)
        tokens = self.expert_tokens
        rows = tokens * experts_per_token / ep
        busier = 1 + np.sqrt(2 * np.log(ep) / np.maximum(rows, 1.0))
        distinct = expected_distinct_experts(experts, experts_per_token, tokens, self.expert_shares) / ep
        return rows * busier, np.minimum(distinct * busier, experts / ep)


def operator_seconds(op: Operator, local: ServingLocal) -> Number:
    """Return the seconds of one operator in one iteration; 0 for boundaries that move nothing."""
    rule = RULES.get(type(op))
    return 0.0 if rule is None else rule(op, local)


def _embedding(op: Embedding, local: ServingLocal) -> Number:
    return local.times.pass_(2 * ACTIVATION_BYTES * op.hidden * local.rows)


def _norm(op: Norm, local: ServingLocal) -> Number:
    cut = local.degrees.tp if op.place == "tensor" else 1
    return local.times.pass_(NORM_BYTES * op.width * op.instances * local.rows / cut)


def _linear(op: Linear, local: ServingLocal) -> Number:
    tp = local.degrees.tp
    inputs = op.inputs / tp if op.split == "row" else op.inputs
    outputs = op.outputs / tp if op.split == "column" else op.outputs
    of_vocabulary = any(parameter.vocab_dim is not None for parameter in op.parameters)
    rows = local.logit_rows if of_vocabulary else local.rows
    return local.times.product(rows, inputs, outputs, local.formats.of(op, local.arch))


def _attention(op: Attention, local: ServingLocal) -> Number:
    """Return the seconds of rotation and writing to the cache, of attention over the cache, and of prompts'."""
    tp = local.degrees.tp
    width = op.heads * op.qk_dim / tp + cached_elements(op, tp)
    rotated = local.times.pass_(2 * ACTIVATION_BYTES * width * local.rows)
    return rotated + _over_cache(op, local) + _of_prompts(op, local)


def _over_cache(op: Attention, local: ServingLocal) -> Number:
    c, forms, load, degrees = local.times.constants, local.times.forms, local.load, local.degrees
    positions = load.sequences * cached_tokens(op, load.context) / degrees.cp
    moved = local.formats.kv_bytes * cached_elements(op, degrees.tp) * positions
    widths = op.qk_dim + op.v_dim
    if local.arch.latent is not None and not op.cache_over_tp:
        widths = op.kv_width + local.arch.latent.kv_rank
    compute = 2.0 * op.heads / degrees.tp * widths * positions
    seconds = np.maximum(
        moved / (c["cache_efficiency"] * forms.memory_bytes_per_s),
        compute / (c["cache_compute_efficiency"] * forms.peak_16bit_flops),
    )
    return np.where(np.asarray(load.sequences) > 0, c["cache_launch_s"] + seconds, 0.0)


def _of_prompts(op: Attention, local: ServingLocal) -> Number:
    load, degrees = local.load, local.degrees
    if not np.any(load.prompt_tokens):
        return 0.0
    rows = load.prompt_tokens / degrees.cp
    flops = op.flops_per_token(cached_tokens(op, load.prompt_positions)) * rows / degrees.tp  # type: ignore[arg-type]
    widths = op.heads * (op.qk_dim + op.v_dim) + op.kv_heads * (op.qk_dim + op.v_dim)
    moved = ACTIVATION_BYTES * widths * rows / degrees.tp
    kernel = local.times.forms.flash(flops, moved, FLASH, local.times.constants["prefill_attention_ratio"])
    keys = ACTIVATION_BYTES * cached_elements(op, degrees.tp) * load.prompt_tokens
    gathered = local.times.exchange("all-gather", keys, degrees.cp)
    return np.where(np.asarray(load.prompt_tokens) > 0, kernel + gathered, 0.0)


def _states(op: LinearAttention | StateSpace, local: ServingLocal) -> Number:
    """Return the seconds to read and write every sequence's states, and of the recurrence over prompts."""
    load, tp = local.load, local.degrees.tp
    kept = operator_cache_bytes(op, 1, local.degrees, local.formats)
    step = local.times.pass_(2 * kept * load.sequences)
    flops = op.flops_per_token(0.0) * load.prompt_tokens / tp
    blocks = 2.0 * op.block * op.width * load.prompt_tokens / tp
    moved = ACTIVATION_BYTES * 4 * op.width * load.prompt_tokens / tp
    scanned = local.times.forms.flash(flops + blocks, moved, FLASH)
    return step + np.where(np.asarray(load.prompt_tokens) > 0, scanned, 0.0)


def _gated_norm(op: GatedNorm, local: ServingLocal) -> Number:
    return local.times.pass_(GATED_BYTES * op.width * local.rows / local.degrees.tp)


def _activation(op: Activation, local: ServingLocal) -> Number:
    moved = GATED_BYTES if op.gated else PLAIN_BYTES
    return local.times.pass_(moved * op.width * local.rows / local.degrees.tp)


def _leave_tensor(op: LeaveTensor, local: ServingLocal) -> Number:
    return local.times.all_reduce(ACTIVATION_BYTES * op.width * local.rows, local.degrees.tp)


def _expert_linear(op: ExpertLinear, local: ServingLocal) -> Number:
    rows, experts = local.busiest_rank(op.experts_per_token, op.experts)
    etp = local.degrees.etp
    inputs = op.inputs / etp if op.split == "row" else op.inputs
    outputs = op.outputs / etp if op.split == "column" else op.outputs
    return local.times.grouped_product(rows, experts, inputs, outputs, local.formats.of(op, local.arch))


def _expert_activation(op: ExpertActivation, local: ServingLocal) -> Number:
    moved = GATED_BYTES if op.gated else PLAIN_BYTES
    rows = local.expert_tokens * op.experts_per_token / local.degrees.ep
    return local.times.pass_(moved * op.width * rows / local.degrees.etp)


def _dispatch(op: Dispatch, local: ServingLocal) -> Number:
    """Return the seconds to choose experts, and to bring rows to their ranks."""
    chosen = local.times.pass_(LOGIT_BYTES * op.experts * local.rows)
    sent = min(ACTIVATION_BYTES, WEIGHT_BITS[local.formats.weights] / 8)
    return chosen + _moved_rows(op, local, "all-gather", max(sent, 1.0))


def _combine(op: Combine, local: ServingLocal) -> Number:
    """Return the seconds to bring results back; without attention_dp they are summed over the experts' ranks."""
    alone = local.times.all_reduce(ACTIVATION_BYTES * op.width * local.rows, local.degrees.tp)
    return np.where(
        np.asarray(local.expert_groups) > 1, _moved_rows(op, local, "reduce-scatter", ACTIVATION_BYTES), alone
    )


def _moved_rows(op: Dispatch | Combine, local: ServingLocal, gather: str, element_bytes: float) -> Number:
    groups, tp, ep = local.expert_groups, local.degrees.tp, np.asarray(local.degrees.ep)
    row = element_bytes * op.width
    gathered = local.times.exchange(gather, row * local.rows * groups, groups * tp)
    reached = ep * (1 - (1 - 1 / ep) ** op.experts_per_token)
    exchanged = local.times.exchange("all-to-all", row * local.rows / tp * reached, ep)
    quicker = np.where(ep > 1, np.minimum(gathered, exchanged), gathered)
    return np.where(np.asarray(groups) > 1, quicker, 0.0)


def _loss(op: Loss, local: ServingLocal) -> Number:
    """Return the seconds to gather the logits of a vocabulary cut over tp, and to choose tokens."""
    logits = op.vocab * local.logit_rows
    gathered = local.times.exchange("all-gather", ACTIVATION_BYTES * logits, local.degrees.tp)
    chosen = local.times.pass_(LOGIT_PASSES * LOGIT_BYTES * logits) + local.times.constants["sampling_s"]
    return gathered + np.where(np.asarray(logits) > 0, chosen, 0.0)


RULES: dict[type[Operator], Callable[[Any, ServingLocal], Number]] = {
    Embedding: _embedding,
    Norm: _norm,
    Linear: _linear,
    Attention: _attention,
    LinearAttention: _states,
    StateSpace: _states,
    GatedNorm: _gated_norm,
    GatedInputNorm: _gated_norm,
    Activation: _activation,
    LeaveTensor: _leave_tensor,
    ExpertLinear: _expert_linear,
    ExpertActivation: _expert_activation,
    Dispatch: _dispatch,
    Combine: _combine,
    Loss: _loss,
}
