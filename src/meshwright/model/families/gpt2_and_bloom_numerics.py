"""Read the arithmetic of GPT-2 and BLOOM, after their shapes (``model/families/gpt2_and_bloom.py``).

Keys and defaults are those of transformers 5.23 (``modeling_gpt2.py``, ``modeling_bloom.py``).
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_numerics import decoder_numerics
from meshwright.model.numerics import Numerics
from meshwright.model.rotary import alibi_head_slopes


def gpt2(fields: Fields, arch: Architecture) -> Numerics:
    """Read GPT-2: learned positions; the scale of scores may be off, or divided by the layer's number."""
    numerics = decoder_numerics(fields, arch, None)
    scale = arch.head_dim**-0.5 if fields.flag("scale_attn_weights", True) else 1.0
    deeper = fields.flag("scale_attn_by_inverse_layer_idx", False)
    scales = tuple(scale / (layer + 1) if deeper else scale for layer in range(arch.layers))
    return replace(numerics, attention_scales=scales)


def bloom(fields: Fields, arch: Architecture) -> Numerics:
    """Read BLOOM: ALiBi and its own GELU."""
    if fields.flag("apply_residual_connection_post_layernorm", False):
        rule = "the residual stream must begin before the norm"
        fields.unsupported("apply_residual_connection_post_layernorm", True, rule, "use false")
    if arch.heads > LARGEST_COUNT:
        fields.unsupported("n_head", arch.heads, f"n_head <= {LARGEST_COUNT}", "check for a slip of the pen")
    slopes = alibi_head_slopes(min(arch.heads, LARGEST_COUNT))
    return replace(decoder_numerics(fields, arch, None), activation="gelu-bloom", alibi_slopes=slopes)
