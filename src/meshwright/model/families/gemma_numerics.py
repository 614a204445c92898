"""Read the arithmetic of Gemma 1, 2 and 3, after their shapes (``model/families/gemma_decoders.py``).

Keys and defaults are those of transformers 5.23 (``modeling_gemma.py`` and those of
its successors).
"""

from dataclasses import replace
from math import sqrt

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_numerics import decoder_numerics, read_activation, rotation
from meshwright.model.families.rotary_fields import read_rotary, refuse_older_key, rope_mapping
from meshwright.model.numerics import Numerics
from meshwright.model.rotary import Rotary


def gemma(fields: Fields, arch: Architecture) -> Numerics:
    """Read Gemma: scores divided by √head_dim, no caps."""
    return _gemma(fields, arch, (rotation(fields, arch, rope_mapping(fields)),) * arch.layers)


def gemma2(fields: Fields, arch: Architecture) -> Numerics:
    """Read Gemma 2: soft caps on scores and logits (a null switches one off)."""
    fields.assume(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    numerics = _with_scalar(fields, arch, (rotation(fields, arch, rope_mapping(fields)),) * arch.layers)
    return replace(numerics, attention_soft_cap=_cap(fields, "attn_logit_softcapping"))


def gemma3(fields: Fields, arch: Architecture) -> Numerics:
    """Read Gemma 3: sliding layers have their own rotation; ``rope_scaling`` of older files applies to the others."""
    if fields.has("attn_logit_softcapping"):
        rule = "Gemma 3 has no cap on scores; transformers reads this key and does not apply it"
        cap = fields.number("attn_logit_softcapping", default=0.0)
        fields.unsupported("attn_logit_softcapping", cap, rule, "use null")
    given = fields.mapping("rope_parameters")
    if fields.has("rope_parameters") and not (given.has("full_attention") or given.has("sliding_attention")):
        rule = "Gemma 3 has one rotation for each type of layer"
        fields.unsupported("rope_parameters", "flat", rule, "full_attention: {...}, sliding_attention: {...}")
    if given.has("full_attention"):
        refuse_older_key(fields)
    older = fields.has("rope_scaling")
    whole = fields.mapping("rope_scaling") if older else given.mapping("full_attention")
    near_theta = fields.number("rope_local_base_freq", default=10000.0, positive=True)
    far = read_rotary(whole, arch)
    near = read_rotary(given.mapping("sliding_attention"), arch, theta=near_theta)
    return _with_scalar(fields, arch, tuple(far if window is None else near for window in arch.windows))


def _with_scalar(fields: Fields, arch: Architecture, rotary: tuple[Rotary | None, ...]) -> Numerics:
    """Read what Gemma 2 and 3 share: a scalar for queries, a cap on logits."""
    scalar = fields.number("query_pre_attn_scalar", default=256.0, positive=True)
    activation = fields.text("hidden_activation", default="gelu_pytorch_tanh")
    return replace(
        _gemma(fields, arch, rotary),
        activation=read_activation(fields, activation),
        attention_scales=(scalar**-0.5,) * arch.layers,
        logit_soft_cap=_cap(fields, "final_logit_softcapping"),
    )


def _gemma(fields: Fields, arch: Architecture, rotary: tuple[Rotary | None, ...]) -> Numerics:
    """Read what all three share: embeddings times √hidden in their dtype, norms of 1 + weight."""
    if fields.flag("use_bidirectional_attention", False):
        rule = "a decoder is run with causal attention only"
        fields.unsupported("use_bidirectional_attention", True, rule, "use false")
    return replace(
        decoder_numerics(fields, arch, None),
        rotary=rotary,
        embedding_multiplier=sqrt(arch.hidden),
        embedding_multiplier_rounded=True,
        norm_offset=1.0,
        norm_weight_in_fp32=True,
    )


def _cap(fields: Fields, key: str) -> float | None:
    return fields.number(key, default=1.0, positive=True) if fields.has(key) else None
