"""The arithmetic of a decoder beyond its shapes: positions, scales, caps, multipliers, the exact activation.

Planning needs none of it; running a model does. An unsupported value is listed in ``Numerics.refused`` and raised only
by ``runnable_numerics``, so that such a model can still be planned. The readers are in
``model/families/numerics_table.py``. Dropout is not here: ``Architecture.dropout`` tells whether a model has any.
"""

from dataclasses import dataclass
from typing import Literal

from meshwright.errors import Problem
from meshwright.model.rotary import Rotary
from meshwright.model.router import Routing

ActivationKind = Literal["silu", "relu", "gelu", "gelu-tanh", "gelu-bloom"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryGrowth:
    """Position-dependent query scale 1 + beta · ln(1 + ⌊p / positions⌋) at position p (Llama 4, Ministral 3)."""

    beta: float
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampedSwiglu:
    """Activation gate · sigmoid(``alpha`` · gate) · (up + 1), gate capped at ``limit``, up at ± ``limit`` (gpt-oss)."""

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """Factors of a residual addition: ``stream``·x + ``part``·f(x)."""

    stream: float = 1.0
    part: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadDecay:
    """The decay of linear attention: head h of layer l multiplies its state by exp(−rate) at every position.

    rate = 2^(−8(h + 1)/H)·(1 − l/(L − 1 + 10⁻⁵) + 10⁻⁵) of H heads and L layers (MiniMax-01's released code): ALiBi's
    slopes, which become flatter from layer to layer.
    """

    heads: int
    layers: int

    def rates(self, layer: int) -> tuple[float, ...]:
        """Return one rate for each head."""
        factor = 1 - layer / (self.layers - 1 + 1e-5) + 1e-5
        return tuple(2.0 ** (-8 * (head + 1) / self.heads) * factor for head in range(self.heads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """The arithmetic of one decoder, in the order in which a token meets it.

    * The embedding is multiplied by ``embedding_multiplier``, rounded to the table's dtype first if
      ``embedding_multiplier_rounded`` (Gemma).
    * RMSNorm is x / √(mean x² + ε) · (``norm_offset`` + weight), at least in single precision up to the weight;
      ``norm_weight_in_fp32``: the weight is applied before the result is rounded (Gemma), not after.
      Head norms come before the rotation.
    * ``rotary`` has one entry for each layer, None without a rotation; ``query_growth`` follows it. With latent
      attention it rotates the rotary part of queries and of the key that all heads share, and the norms of the
      compressed rows have their own ε, ``latent_norm_epsilon``.
    * ``rotary_sections``: pairs of a head that turn with the time, row and column of a position, in turn, where images
      give a position all three (Qwen2-VL, arXiv 2409.12191, section 2.1); empty: all turn with the position.
    * Scores are q·k · ``attention_scales[layer]``, then cap · tanh(scores / cap) if ``attention_soft_cap``,
      then + slope · (j − i) for key j of query i if there are ``alibi_slopes``, one for each head.
    * If the architecture has attention sinks, a head's sink is one more score of every query, unscaled, of a key
      whose value is zero.
    * Linear attention applies ``activation`` to queries, keys and values, neither rotates nor scales them, and keeps
      states that ``decay``; its gated norm has its own ε, ``linear_norm_epsilon``.
    * ``activation``: ``gelu`` is exact, ``gelu-tanh`` its approximation, ``gelu-bloom`` that with BLOOM's constant.
      ``expert_activation`` replaces it in routed experts.
    * ``routing``: how a router chooses and weighs, in every routed layer; None without experts.
    * Each sublayer's result is added to the stream with the factors ``attention_mixing[layer]`` (1 if empty) and
      ``feedforward_mixing``.
    * Logits are divided by ``logit_divisor``, then capped by ``logit_soft_cap`` as the scores are.

    ``refused`` lists the configuration's unsupported values.
    """

    activation: ActivationKind
    rotary: tuple[Rotary | None, ...]
    attention_scales: tuple[float, ...]
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    logit_divisor: float = 1.0
    embedding_multiplier: float = 1.0
    embedding_multiplier_rounded: bool = False
    attention_mixing: tuple[Mixing, ...] = ()
    feedforward_mixing: Mixing = Mixing()
    decay: HeadDecay | None = None
    linear_norm_epsilon: float = 1e-6
    norm_offset: float = 0.0
    norm_weight_in_fp32: bool = False
    query_growth: QueryGrowth | None = None
    rotary_sections: tuple[int, ...] = ()
    alibi_slopes: tuple[float, ...] = ()
    latent_norm_epsilon: float = 1e-6
    expert_activation: ClampedSwiglu | None = None
    routing: Routing | None = None
    refused: tuple[Problem, ...] = ()

    def mixing_of_attention(self, layer: int) -> Mixing:
        """Return the residual factors of a layer's attention."""
        return self.attention_mixing[layer] if self.attention_mixing else Mixing()


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
"""Numerics of a model whose configuration was not read: it can be planned, not run."""
