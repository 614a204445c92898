"""The neutral facts of a decoder, as read from any configuration file.

An ``Architecture`` describes the model, free of any framework's spelling;
``model/families/architecture_table.py`` reads it from a Hugging Face ``config.json`` and
``model/operators/blocks.py`` turns it into a graph of operators. Exporters also read it, to write a model in their
target's words.
"""

from dataclasses import dataclass
from itertools import starmap
from typing import Literal

from meshwright.model.encoder import Encoder
from meshwright.model.numerics import UNKNOWN, Numerics

NormKind = Literal["rmsnorm", "layernorm", "bare-layernorm"]
"""A bare LayerNorm has neither weight nor bias."""
Positions = Literal["rope", "learned", "alibi", "relative", "none"]
Mixer = Literal["softmax", "linear", "state-space", "none"]
"""How a layer mixes the tokens of a sequence."""
LayerParts = Literal["both", "mixer", "feed-forward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``q_rank`` is None if queries are projected directly. Dims are per head. A head's query is its ``qk_nope_dim``
    elements and then its ``qk_rope_dim`` rotary ones; a compressed row is ``kv_rank`` elements, from which every
    head's key (without its rotary part) and value are computed, and then one rotary part of the key for all heads.
    """

    q_rank: int | None
    kv_rank: int
    qk_nope_dim: int
    qk_rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture-of-experts feed-forward layer, and the layers that have it.

    ``layers`` holds one bool per decoder layer: True if the layer's feed-forward part is routed.
    ``shared_intermediate`` is the width of all shared experts together (0 = none). ``router_correction``: the router
    keeps one bias per expert that is stored with the weights but not trained by gradients; ``router_bias`` is an
    ordinary bias. ``shared_gate``: the shared experts' result is scaled by the sigmoid of one more projection, hidden
    → 1.
    """

    experts: int
    experts_per_token: int
    intermediate: int
    shared_intermediate: int = 0
    layers: tuple[bool, ...]
    expert_bias: bool = False
    router_bias: bool = False
    router_correction: bool = False
    shared_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLayers:
    """Lightning attention in some layers (MiniMax-01, arXiv 2501.08313, section 2.2): True for each that has it.

    It has as many query, key and value heads as softmax attention has query heads, of ``head_dim`` elements, and a
    gate as wide as all of them. ``block``: positions that a kernel processes at a time.
    """

    block: int
    layers: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpaceLayers:
    """Mamba-2 in some layers (arXiv 2405.21060): True for each that has it.

    ``heads`` heads of ``head_dim`` elements share the input and output projections of the state, B and C of ``state``
    elements each, in ``groups`` groups of as many heads. A causal filter of ``filter_length`` positions precedes the
    recurrence, with a bias if ``filter_bias``. ``block``: positions that a kernel processes at a time.
    ``delta_rule``: what a state holds of a key is replaced, not added to (Gated DeltaNet, arXiv 2412.06464); B and C
    are then keys and queries, a head also has a rate of writing in place of D, and a norm is that of a head.
    """

    heads: int
    head_dim: int
    state: int
    filter_length: int
    filter_bias: bool
    block: int
    layers: tuple[bool, ...]
    groups: int = 1
    delta_rule: bool = False

    @property
    def shared_width(self) -> int:
        """Elements of B and C of all groups."""
        return 2 * self.groups * self.state

    @property
    def width(self) -> int:
        """Elements of all heads."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One language model: a decoder, perhaps with an encoder. Widths are in elements; ``windows`` has an entry per
    layer.

    ``windows[i]`` is the number of positions that layer i's attention sees, None for all of them.
    ``head_dim`` is the query and key width of a head; ``v_head_dim`` differs from it only with latent
    attention. ``intermediate`` is the dense feed-forward width (of the leading dense layers in a
    mixture-of-experts model; 0 if every layer is routed). ``tied_embeddings``: the output projection is the
    embedding table. The last ``next_token_layers`` of the layers are for multi-token prediction; their losses have
    weight ``next_token_weight`` (``model/operators/multi_token_prediction.py``).
    ``encoder``: what the decoder reads besides text, None for a decoder alone; ``layers`` are the decoder's.
    ``qk_norm``: queries and keys are normalised, each head by itself or, ``qk_norm_over_heads``, all heads together.
    ``attention_gate``: a gate as wide as the queries, projected with them, scales what attention returns.
    ``residual_after_norm``: a sublayer's result is added to its norm's result instead of the norm's input.
    ``layer_parts``: the parts that each layer has; empty: both in all. ``parallel_parts``: a layer's mixer and
    feed-forward part read the result of one norm. ``head_bias``: the output projection has a bias.

    ``assumed`` lists keys that the configuration omits, with their family's default, ``left_out`` what it contains and
    nothing here counts. ``numerics`` is what running the model needs in addition. ``released_weights`` is the number
    format of its published weights (``model/weight_formats.py``).
    """

    name: str
    family: str
    source: str
    layers: int
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    intermediate: int
    gated: bool
    activation: str
    norm: NormKind = "rmsnorm"
    norms_per_layer: Literal[2, 4] = 2
    embedding_norm: bool = False
    qk_norm: bool = False
    qk_norm_over_heads: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    attention_sinks: bool = False
    attention_gate: bool = False
    dropout: bool = False
    positions: Positions = "rope"
    max_positions: int
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5
    tied_embeddings: bool
    latent: LatentAttention | None = None
    moe: Experts | None = None
    linear: LinearLayers | None = None
    state_space: StateSpaceLayers | None = None
    encoder: Encoder | None = None
    residual_after_norm: bool = False
    parallel_parts: bool = False
    layer_parts: tuple[LayerParts, ...] = ()
    windows: tuple[int | None, ...]
    next_token_layers: int = 0
    next_token_weight: float = 0.0
    left_out: tuple[str, ...] = ()
    assumed: tuple[tuple[str, int | float | str | bool], ...] = ()
    numerics: Numerics = UNKNOWN
    released_weights: str = "bf16"

    @property
    def centred_norms(self) -> bool:
        """Return whether norms subtract the mean first."""
        return self.norm != "rmsnorm"

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """Return how each layer mixes the tokens of a sequence; ``none`` for a feed-forward part alone."""
        nowhere = (False,) * self.layers
        linear = self.linear.layers if self.linear else nowhere
        state_space = self.state_space.layers if self.state_space else nowhere
        return tuple(starmap(_mixer, zip(self.parts, linear, state_space, strict=True)))

    @property
    def parts(self) -> tuple[LayerParts, ...]:
        """Return the parts of each layer."""
        both: LayerParts = "both"
        return self.layer_parts or (both,) * self.layers

    @property
    def main_layers(self) -> int:
        """Layers before those for multi-token prediction."""
        return self.layers - self.next_token_layers


def _mixer(parts: LayerParts, is_linear: bool, is_state_space: bool) -> Mixer:
    if parts == "feed-forward":
        return "none"
    return "linear" if is_linear else "state-space" if is_state_space else "softmax"
