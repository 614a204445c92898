"""Routing of a mixture-of-experts layer: choosing a token's experts, weighing their results, balancing the load.

In the order in which a token x meets it, with E experts of which k are chosen (``Experts`` has these numbers and the
tensors):

1. logits l = W·x, + b if ``Experts.router_bias``;
2. scores s = softmax(l), or sigmoid(l), or l itself (``softmax-of-chosen``), at least in single precision;
3. choice by c = s, + the stored correction if ``Experts.router_correction``;
4. with ``groups``, only the experts of a few groups are left (``Groups``);
5. the k experts with the largest c are chosen; equal ones in any order;
6. weights are the chosen experts' s, without the correction: as they are, or divided by their sum + ``epsilon`` if
   ``normalised``, or for ``softmax-of-chosen`` the softmax of the chosen l; then times ``scaling``;
7. the layer's result is Σ weight · expert(x), + the shared experts' result, which is first multiplied by
   sigmoid(w·x) if ``Experts.shared_gate``.

Gradients flow through the weights, not through the choice. The workload's expert capacity decides which choices are
dropped (``workload/expert_capacity.py``). This module uses no tensors.

Sources: softmax before the choice GShard, arXiv 2006.16668, after it Mixtral, arXiv 2401.04088 (the same numbers as
softmax before it, normalised); groups and sequence-wise balance DeepSeek-V2, arXiv 2405.04434; sigmoid and correction
DeepSeek-V3, arXiv 2412.19437.
"""

from dataclasses import dataclass
from typing import Literal

Scores = Literal["softmax", "sigmoid", "softmax-of-chosen"]
Scope = Literal["sequence", "micro-batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Experts in ``count`` equal groups, in order; only those of the ``chosen`` best groups can be chosen.

    A group is worth the sum of its ``best`` largest c: 1 is its maximum (DeepSeek-V2), 2 DeepSeek-V3's rule.
    """

    count: int
    chosen: int
    best: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalance:
    """A load-balancing loss of each routed layer, smallest if all experts get equally many tokens.

    Over the T tokens of one ``scope`` it is ``coefficient`` · E · Σ_e f_e · P_e, where f_e is the share of the T·k
    choices that fell on expert e (no gradient) and P_e the mean of its probability: the softmax of all logits, or
    sigmoid(l_e) / (Σ sigmoid(l) + ``epsilon``). All tokens count, with and without a label. The losses of a layer's
    scopes in a batch are averaged, those of layers added, to the mean cross-entropy of the batch.

    A sequence is the same tokens in every plan; a micro-batch is what one data-parallel rank computes at once,
    so that the loss depends on the plan.
    """

    coefficient: float
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The arithmetic of a router, in the order that the module gives.

    ``projected_in_fp32``: W·x is computed at least in single precision too, whatever the model's precision.
    ``correction_speed`` γ: after each step the stored correction of an expert grows by γ · sign(mean load − its load),
    loads being choices of all tokens of the batch; 0 leaves it unchanged. It gets no gradient, no weight decay, no
    clipping.
    """

    scores: Scores
    projected_in_fp32: bool = False
    normalised: bool = False
    epsilon: float = 0.0
    scaling: float = 1.0
    groups: Groups | None = None
    balance: LoadBalance | None = None
    correction_speed: float = 0.0
