"""Read the arithmetic of decoders with experts, latent attention and sinks, after their shapes (``moe_decoders.py``).

Keys and defaults are those of transformers 5.23 (``configuration_*.py`` and ``modeling_*.py`` of each family);
``router_fields.py`` reads the routers. Kimi-K2 is DeepSeek-V3 with other sizes.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_numerics import decoder_numerics, llama, rotated_share, rotation
from meshwright.model.families.rotary_fields import read_rotary, rope_mapping
from meshwright.model.families.router_fields import (
    corrected_routing,
    layers_pooled,
    refuse_other_values,
    softmax_routing,
)
from meshwright.model.numerics import ClampedSwiglu, Numerics
from meshwright.model.rotary import Rotary, Yarn
from meshwright.model.router import Routing


def mixtral(fields: Fields, arch: Architecture) -> Numerics:
    """Read Mixtral: softmax, with the weights of the chosen experts normalised."""
    noise = fields.number("router_jitter_noise", default=0.0)
    if noise:
        fields.unsupported("router_jitter_noise", noise, "noise on what routers see is not supported", "0.0")
    routing = Routing(scores="softmax", normalised=True, balance=layers_pooled(fields, arch))
    return _routed(llama(fields, arch), arch, routing)


def qwen_moe(fields: Fields, arch: Architecture) -> Numerics:
    """Read Qwen2 and Qwen3 with experts: softmax, normalised if ``norm_topk_prob``."""
    normalised = fields.flag("norm_topk_prob", False)
    routing = Routing(scores="softmax", normalised=normalised, balance=layers_pooled(fields, arch))
    return _routed(llama(fields, arch), arch, routing)


def deepseek_v2(fields: Fields, arch: Architecture) -> Numerics:
    """Read DeepSeek-V2: softmax, the best experts of the best groups or of all."""
    numerics = _latent(fields, arch, interleaved=True)
    return _routed(numerics, arch, softmax_routing(fields, arch))


def deepseek_v3(fields: Fields, arch: Architecture) -> Numerics:
    """Read DeepSeek-V3 and Kimi-K2: sigmoid with a correction, in groups."""
    fields.assume(n_group=8, topk_group=4, norm_topk_prob=True, routed_scaling_factor=2.5)
    numerics = _latent(fields, arch, interleaved=fields.flag("rope_interleave", True))
    return _routed(numerics, arch, corrected_routing(fields, arch))


def glm4_moe(fields: Fields, arch: Architecture) -> Numerics:
    """Read GLM-4.5: the routers of DeepSeek-V3; half of each head is rotated."""
    fields.assume(norm_topk_prob=True)
    rope = rope_mapping(fields)
    rotary = read_rotary(rope, arch, share=rotated_share(fields, rope, 0.5))
    return _routed(decoder_numerics(fields, arch, rotary), arch, corrected_routing(fields, arch))


def dots1(fields: Fields, arch: Architecture) -> Numerics:
    """Read dots.llm1: the routers of DeepSeek-V3."""
    return _routed(llama(fields, arch), arch, corrected_routing(fields, arch))


def gpt_oss(fields: Fields, arch: Architecture) -> Numerics:
    """Read gpt-oss: softmax over the chosen experts, a clamped SwiGLU; the default rotation is Yarn by 32."""
    activation = ClampedSwiglu(
        alpha=fields.number("swiglu_alpha", default=1.702, positive=True),
        limit=fields.number("swiglu_limit", default=7.0, positive=True),
    )
    refuse_other_values(fields, "hidden_act", "silu")
    routing = Routing(scores="softmax-of-chosen", balance=layers_pooled(fields, arch))
    if fields.has("rope_parameters") or fields.has("rope_scaling"):
        numerics = llama(fields, arch)
    else:
        scaling = Yarn(factor=32.0, original_positions=4096, truncate=False)
        rotary = Rotary(theta=arch.rope_theta, dim=arch.head_dim, scaling=scaling)
        numerics = decoder_numerics(fields, arch, rotary)
    return replace(_routed(numerics, arch, routing), expert_activation=activation)


def _latent(fields: Fields, arch: Architecture, *, interleaved: bool) -> Numerics:
    """Read latent attention: only the rotary part of queries and keys is rotated.

    Yarn's second factor scales the scores.
    """
    assert arch.latent is not None
    rope = rope_mapping(fields)
    rotary = rotation(fields, arch, rope, width=arch.latent.qk_rope_dim, interleaved=interleaved)
    numerics, scaling = decoder_numerics(fields, arch, rotary), rotary.scaling
    if isinstance(scaling, Yarn):
        scales = tuple(scale * scaling.score_factor for scale in numerics.attention_scales)
        return replace(numerics, attention_scales=scales)
    factor = rope.number("mscale_all_dim", default=0.0)
    if factor and scaling is not None:
        rule = "multiplies scores where rope_type is yarn only"
        rope.unsupported("mscale_all_dim", factor, rule, "leave it out")
    return numerics


def _routed(numerics: Numerics, arch: Architecture, routing: Routing) -> Numerics:
    """Add the routing, unless no layer is routed."""
    return replace(numerics, routing=None if arch.moe is None else routing)
