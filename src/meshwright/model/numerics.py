"""What a decoder computes beyond its shapes: positions, scales, caps, multipliers, the exact activation.

Planning needs none of it; running a model does. A value that is not supported stands in ``Numerics.refused`` and is
raised by ``numerics_to_run`` only, so that such a model can still be planned. The readers are in
``model/family_numerics.py``. Dropout is not here: ``Architecture.dropout`` says whether a model has any.
"""

from dataclasses import dataclass
from typing import Literal

from meshwright.errors import Problem
from meshwright.model.rotary import Rotary
from meshwright.model.routing import Routing

ActivationKind = Literal["silu", "relu", "gelu", "gelu-tanh", "gelu-bloom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryGrowth:
    """A query at position p is multiplied by 1 + beta · ln(1 + ⌊p / positions⌋) (Llama 4, Ministral 3)."""

    beta: float
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedSwiglu:
    """gate · sigmoid(``alpha`` · gate) · (up + 1), gate first capped at ``limit``, up at ± ``limit`` (gpt-oss)."""

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The arithmetic of one decoder, in the order in which a token meets it.

    * The embedding is multiplied by ``embedding_multiplier``, which is first rounded to the table's dtype where
      ``embedding_multiplier_rounded`` (Gemma).
    * RMSNorm is x / √(mean x² + ε) · (``norm_offset`` + weight), at least in single precision up to the weight;
      ``norm_weight_in_fp32`` says that the weight is applied before the result is rounded (Gemma), not after.
      Head norms come before the rotation.
    * ``rotary`` has one entry for each layer, None without a rotation; ``query_growth`` follows it. With latent
      attention it turns the rotary part of queries and of the key that all heads share, and the norms of the
      compressed rows have an ε of their own, ``latent_norm_epsilon``.
    * Scores are q·k · ``attention_scales[layer]``, then cap · tanh(scores / cap) where ``attention_soft_cap``,
      then + slope · (j − i) for key j of query i where there are ``alibi_slopes``, one for each head.
    * Where the architecture has attention sinks, a head's sink is one more score of every query, unscaled, of a key
      whose value is zero.
    * ``activation``: ``gelu`` is exact, ``gelu-tanh`` its approximation, ``gelu-bloom`` that with BLOOM's constant.
      ``expert_activation`` stands in its place in routed experts.
    * ``routing``: how a router chooses and weighs, in every routed layer; None without experts.
    * Each part's result is multiplied by ``residual_multiplier`` where it is added to the stream.
    * Logits are divided by ``logit_divisor``, then capped by ``logit_soft_cap`` as the scores are.

    ``refused`` lists what the configuration asks for and is not supported.
    """

    activation: ActivationKind
    rotary: tuple[Rotary | None, ...]
    attention_scales: tuple[float, ...]
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    logit_divisor: float = 1.0
    embedding_multiplier: float = 1.0
    embedding_multiplier_rounded: bool = False
    residual_multiplier: float = 1.0
    norm_offset: float = 0.0
    norm_weight_in_fp32: bool = False
    query_growth: QueryGrowth | None = None
    alibi_slopes: tuple[float, ...] = ()
    latent_norm_epsilon: float = 1e-6
    expert_activation: ClampedSwiglu | None = None
    routing: Routing | None = None
    refused: tuple[Problem, ...] = ()


UNKNOWN = Numerics(
    activation="silu",
    rotary=(),
    attention_scales=(),
    refused=(
        Problem(
            "model",
            None,
            "its arithmetic is not known, only its shapes",
            "run a model that has a config.json",
        ),
    ),
)
"""Stands where no configuration was read: such a model can be planned, not run."""
