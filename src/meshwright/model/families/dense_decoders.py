"""Read the shapes of dense decoders: one reader for each family of a Hugging Face ``config.json``.

A reader takes ``Fields`` and returns an ``Architecture``. Absent keys that change a shape get the default of
transformers 5.23 (key-value heads: as many as heads, unless the reader assumes otherwise), so that parameter
counts agree exactly. Position scaling, soft caps and multipliers change no shape: ``model/families/numerics_table.py``
reads them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields

Windows = tuple[int | None, ...]
NORM_EPSILONS = ("rms_norm_eps", "norm_epsilon", "layer_norm_epsilon", "layer_norm_eps")
LAYER_TYPES = ("full_attention", "sliding_attention")


def decoder(fields: Fields, theta: float = 10000.0) -> Architecture:
    """Read the pre-norm decoder with RMSNorm, rotary positions and gated feed-forward that most families share."""
    layers = fields.size("num_hidden_layers", most=LARGEST_COUNT)
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    kv = fields.size("num_key_value_heads", default=heads)
    fields.divides(
        "num_attention_heads", heads, "num_key_value_heads", kv, "every key-value head serves as many heads"
    )
    width = read_head_dim(fields, hidden, heads)
    return Architecture(
        name="",
        family="",
        source="",
        layers=layers,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        heads=heads,
        kv_heads=kv,
        head_dim=width,
        v_head_dim=width,
        intermediate=fields.size("intermediate_size"),
        gated=True,
        activation=fields.text("hidden_activation", "hidden_act", default="silu"),
        max_positions=fields.size("max_position_embeddings", default=2048),
        rope_theta=read_theta(fields, theta),
        norm_epsilon=fields.number(*NORM_EPSILONS, default=1e-6, positive=True),
        tied_embeddings=fields.flag("tie_word_embeddings", False),
        windows=(None,) * layers,
    )


def read_head_dim(fields: Fields, hidden: int, heads: int) -> int:
    """Read ``head_dim``, by default hidden / heads, which must then be whole."""
    if not fields.has("head_dim"):
        suggestion = "give head_dim, or a hidden_size that the heads divide"
        fields.divides("hidden_size", hidden, "num_attention_heads", heads, suggestion)
    return fields.size("head_dim", default=max(1, hidden // heads))


def read_theta(fields: Fields, default: float) -> float:
    """Read the rotary base: ``rope_parameters.rope_theta``, its ``full_attention`` entry, or ``rope_theta``."""
    rope = fields.mapping("rope_parameters")
    if rope.has("full_attention"):
        rope = rope.mapping("full_attention")
    if rope.has("rope_theta"):
        return rope.number("rope_theta", default=default, positive=True)
    return fields.number("rope_theta", default=default, positive=True)


def read_windows(fields: Fields, layers: int, window: int | None, sliding: Callable[[int], bool]) -> Windows:
    """Return one window per layer: by ``layer_types``, else by ``sliding(layer)``."""
    kinds = read_layer_types(fields, layers, LAYER_TYPES)
    if kinds is None:
        return tuple(window if sliding(layer) else None for layer in range(layers))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def read_layer_types(fields: Fields, layers: int, supported: Sequence[str]) -> Sequence[str] | None:
    """Read ``layer_types``, one of those ``supported`` for each layer; None if absent."""
    kinds = fields.items("layer_types", lambda kind: isinstance(kind, str), "names of layer types")
    if kinds is None:
        return None
    if fields.sound("num_hidden_layers") and len(kinds) != layers:
        rule = f"len(layer_types) = {len(kinds)} must be num_hidden_layers = {layers}"
        fields.problem("layer_types", f"{len(kinds)} entries", rule, "one entry for each layer")
    for kind in sorted(set(kinds) - set(supported)):
        rule = f"layers of type {kind} are not supported"
        fields.unsupported("layer_types", kind, rule, "supported are " + ", ".join(supported))
    return kinds


def late_windows(fields: Fields, arch: Architecture) -> Architecture:
    """Apply Qwen's rule: with ``use_sliding_window``, layers from ``max_window_layers`` on slide."""
    fields.assume(sliding_window=4096, max_window_layers=28)
    on = fields.flag("use_sliding_window", False)
    window = fields.optional_size("sliding_window") if on else None
    first = fields.size("max_window_layers", default=28, least=0)
    return replace(arch, windows=read_windows(fields, arch.layers, window, lambda layer: layer >= first))


def attention_biases(fields: Fields, arch: Architecture, default: bool = False) -> Architecture:
    """Apply ``attention_bias``: a bias on all four attention projections."""
    bias = fields.flag("attention_bias", default)
    return replace(arch, qkv_bias=bias, output_bias=bias)


def has_dropout(fields: Fields, *keys: str, default: float) -> bool:
    """Return whether any of these dropout rates is above zero."""
    return max([fields.number(key, default=default) for key in keys]) > 0


def llama(fields: Fields) -> Architecture:
    """Read Llama 2 and 3 (arXiv 2307.09288, 2407.21783), Granite."""
    arch = attention_biases(fields, decoder(fields))
    return replace(arch, mlp_bias=fields.flag("mlp_bias", False))


def smollm3(fields: Fields) -> Architecture:
    """Read SmolLM3: Llama's shapes, every fourth layer without rotary positions."""
    fields.assume(num_key_value_heads=4, tie_word_embeddings=True)
    arch = attention_biases(fields, decoder(fields, theta=2e6))
    if fields.flag("use_sliding_window", False):
        fields.unsupported(
            "use_sliding_window", True, "sliding SmolLM3 layers are not supported", "use false"
        )
    return replace(arch, mlp_bias=fields.flag("mlp_bias", False))


def mistral(fields: Fields) -> Architecture:
    """Read Mistral (arXiv 2310.06825): every layer slides if ``sliding_window`` is not null."""
    fields.assume(num_key_value_heads=8, sliding_window=4096)
    return _all_sliding(fields, decoder(fields))


def ministral3(fields: Fields) -> Architecture:
    """Read Ministral 3."""
    fields.assume(num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-5)
    scaled = fields.has("rope_parameters") or fields.has("rope_scaling")
    return _all_sliding(fields, decoder(fields, theta=1e4 if scaled else 1e6))


def phi3(fields: Fields) -> Architecture:
    """Read Phi-3 (arXiv 2404.14219)."""
    fields.assume(max_position_embeddings=4096, rms_norm_eps=1e-5)
    dropout = has_dropout(fields, "resid_pdrop", "attention_dropout", default=0.0)
    return replace(_all_sliding(fields, decoder(fields)), dropout=dropout)


def qwen2(fields: Fields) -> Architecture:
    """Read Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): biases on queries, keys and values only."""
    return replace(late_windows(fields, decoder(fields)), qkv_bias=True)


def qwen2_5_vl_text(fields: Fields) -> Architecture:
    """Read the text tower of Qwen2.5-VL (arXiv 2502.13923): Qwen2 with other defaults."""
    fields.assume(num_key_value_heads=8, max_window_layers=80, rms_norm_eps=1e-5)
    return replace(late_windows(fields, decoder(fields, theta=1e6)), qkv_bias=True)


def qwen3(fields: Fields) -> Architecture:
    """Read Qwen3 (arXiv 2505.09388): norms on each query and key head."""
    fields.assume(head_dim=128)
    return replace(attention_biases(fields, late_windows(fields, decoder(fields))), qk_norm=True)


def qwen3_vl_text(fields: Fields) -> Architecture:
    """Read the text tower of Qwen3-VL: Qwen3 without windows."""
    fields.assume(head_dim=128)
    return replace(attention_biases(fields, decoder(fields, theta=5e5)), qk_norm=True)


def glm(fields: Fields) -> Architecture:
    """Read GLM-4 (arXiv 2406.12793): biases on queries, keys and values."""
    fields.assume(num_key_value_heads=2, head_dim=128, rms_norm_eps=1.5625e-7)
    return replace(decoder(fields), qkv_bias=fields.flag("attention_bias", True))


def glm4(fields: Fields) -> Architecture:
    """Read GLM-4-0414: GLM-4 with four norms a layer."""
    return replace(glm(fields), norms_per_layer=4)


def ernie4_5(fields: Fields) -> Architecture:
    """Read dense ERNIE 4.5: Llama's shapes with one switch for all biases."""
    fields.assume(num_key_value_heads=2, head_dim=128, tie_word_embeddings=True, rms_norm_eps=1e-5)
    bias = fields.flag("use_bias", False)
    return replace(decoder(fields, theta=5e5), qkv_bias=bias, output_bias=bias, mlp_bias=bias)


def olmo(fields: Fields) -> Architecture:
    """Read OLMo (arXiv 2402.00838): Llama's shapes with LayerNorms that have no weights."""
    arch = attention_biases(fields, decoder(fields))
    return replace(arch, norm="bare-layernorm", norm_epsilon=1e-5)


def stablelm(fields: Fields) -> Architecture:
    """Read StableLM (arXiv 2402.17834): LayerNorm, gated feed-forward."""
    fields.assume(layer_norm_eps=1e-5, num_key_value_heads=32)
    if fields.flag("use_parallel_residual", False):
        rule = "attention and feed-forward side by side are not supported"
        fields.unsupported("use_parallel_residual", True, rule, "use false")
    if fields.flag("qk_layernorm", False):
        rule = "norms with weights of their own for every head are not supported"
        fields.unsupported("qk_layernorm", True, rule, "use false")
    return replace(
        decoder(fields),
        norm="layernorm",
        qkv_bias=fields.flag("use_qkv_bias", False),
        dropout=has_dropout(fields, "hidden_dropout", "attention_dropout", default=0.0),
    )


def starcoder2(fields: Fields) -> Architecture:
    """Read StarCoder2 (arXiv 2402.19173): LayerNorm, biases everywhere, plain feed-forward."""
    fields.assume(num_key_value_heads=2, tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh")
    fields.assume(norm_epsilon=1e-5)
    bias = fields.flag("use_bias", True)
    return replace(
        _all_sliding(fields, decoder(fields)),
        gated=False,
        norm="layernorm",
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        dropout=has_dropout(fields, "residual_dropout", "attention_dropout", default=0.0),
    )


def _all_sliding(fields: Fields, arch: Architecture) -> Architecture:
    window = fields.optional_size("sliding_window")
    return replace(arch, windows=read_windows(fields, arch.layers, window, lambda layer: True))
