"""Seconds of the items of one iteration of a replica, on one rank: kernels of operators, and collectives.

``program/serving/iteration_items.py`` says which items there are, for a Program and for arrays of replicas. One small
function for each operator type that has kernels, all of ``(operator, local) → seconds``; a new operator is a function
and a line in ``RULES``. A collective takes what its curve says (``hardware_times.py``).

    attention over the cache   t0 + max(n_d·c·bytes/(η·BW), FLOPs/(e·P)); latent: 2·heads·(kv_width + kv_rank) each
    attention of prompts       the flash kernel of training, 2·heads·(qk + v) a position
    experts                    rows N·k/ep of the busiest rank, over its expected distinct experts
    head                       rows of sequences whose next token is asked for, not of all prompt tokens

The busiest of ep ranks has μ + √(2·μ·ln ep) rows, the usual bound of the largest of ep Poisson counts of mean μ.
Ignored: imbalance of routers beyond chance. ``overlap_forms.py`` overlaps the items of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.serving.all_reduce_forms import ALL_REDUCE_FORMS
from meshwright.cost.serving.distinct_expert_count import expected_distinct_experts
from meshwright.cost.serving.hardware_times import ACTIVATION_BYTES, ServingTimes
from meshwright.model.operators.operator_types import (
    Activation,
    Attention,
    Dispatch,
    Embedding,
    ExpertActivation,
    ExpertLinear,
    GatedInputNorm,
    GatedNorm,
    Linear,
    LinearAttention,
    Loss,
    Norm,
    Operator,
    StateSpace,
)
from meshwright.program.local_shape import Number
from meshwright.program.pass_items import Collective, Compute, Item
from meshwright.program.serving.iteration_shape import IterationLoad as IterationLoad
from meshwright.program.serving.iteration_shape import IterationShape
from meshwright.program.serving.kv_bytes import cached_elements, cached_tokens, operator_cache_bytes

GroupSize = Callable[[tuple[str, ...]], Number]
"""Ranks of a group by its axes."""
FLASH = "flash3"
LOGIT_BYTES = 4
LOGIT_PASSES = 3
"""Passes over the logits: to fp32, softmax, and choice of a token."""
NORM_BYTES = 8
"""A norm reads its input and the stream, and writes the new stream and its result."""
GATED_BYTES, PLAIN_BYTES = 6, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLocal(IterationShape):
    """The inputs of an item's time other than the item. ``expert_shares``: of choices, None: all alike."""

    times: ServingTimes
    expert_shares: tuple[float, ...] | None = None
    allreduce: str = "auto"

    def busiest_rank(self, experts_per_token: int, experts: int) -> tuple[Number, Number]:
        """Return the rows of the busiest rank of ep, and the experts there that have any."""
        ep = np.asarray(self.degrees.ep)
        tokens = self.expert_tokens
        rows = tokens * experts_per_token / ep
        busier = 1 + np.sqrt(2 * np.log(ep) / np.maximum(rows, 1.0))
        distinct = expected_distinct_experts(experts, experts_per_token, tokens, self.expert_shares) / ep
        return rows * busier, np.minimum(distinct * busier, experts / ep)


def item_seconds(item: Item, local: ServingLocal) -> Number:
    """Return the seconds of one item of an iteration."""
    if isinstance(item, Compute):
        return kernel_seconds(item.operator, local)
    assert isinstance(item, Collective), "nothing overlaps in an iteration"
    return collective_seconds(item, local.times, local.degrees.group_size, local.allreduce)


def collective_seconds(
    item: Collective, times: ServingTimes, members: GroupSize, allreduce: str = "auto"
) -> Number:
    """Return the seconds of a collective, or of the quickest of its alternatives between several ranks."""
    quickest = _alone(item, times, members, allreduce)
    for other in item.alternatives:
        quicker = np.minimum(quickest, _alone(other, times, members, allreduce))
        quickest = np.where(np.asarray(members(other.axes)) > 1, quicker, quickest)
    return quickest


def _alone(item: Collective, times: ServingTimes, members: GroupSize, allreduce: str) -> Number:
    if item.kind == "all-reduce":
        return ALL_REDUCE_FORMS[allreduce](times, item.logical_bytes, members(item.axes))
    return times.exchange(item.kind, item.logical_bytes, members(item.axes))


def kernel_seconds(op: Operator, local: ServingLocal) -> Number:
    """Return the seconds of one operator's kernels in one iteration; 0 for one that has none."""
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
    return rotated + cache_seconds(op, local) + _of_prompts(op, local)


def cache_seconds(op: Attention, local: ServingLocal) -> Number:
    """Return the seconds of attention of the sequences that decode over their cache."""
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
    return np.where(np.asarray(load.prompt_tokens) > 0, kernel, 0.0)


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
    """Return the seconds to choose experts."""
    return local.times.pass_(LOGIT_BYTES * op.experts * local.rows)


def _loss(op: Loss, local: ServingLocal) -> Number:
    """Return the seconds to choose tokens."""
    logits = op.vocab * local.logit_rows
    chosen = local.times.pass_(LOGIT_PASSES * LOGIT_BYTES * logits) + local.times.constants["sampling_s"]
    return np.where(np.asarray(logits) > 0, chosen, 0.0)


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
    ExpertLinear: _expert_linear,
    ExpertActivation: _expert_activation,
    Dispatch: _dispatch,
    Loss: _loss,
}
