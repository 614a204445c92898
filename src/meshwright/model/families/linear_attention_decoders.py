"""Read decoders with linear attention: MiniMax-Text-01 and -M1 as transformers writes them.

Keys and defaults are those of transformers 5.23 (``models/minimax``). It rotates whole heads and does not read
``rotary_dim``; the released code and vLLM rotate that many elements of a head, and so does this reader if a file has
the key.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture, LinearLayers
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.dense_decoders import read_layer_types
from meshwright.model.families.moe_decoders import mixtral
from meshwright.model.families.moe_numerics import mixtral as mixtral_numerics
from meshwright.model.families.rotary_fields import read_rotary, rope_mapping
from meshwright.model.numerics import HeadDecay, Mixing, Numerics

FULL, LINEAR = "full_attention", "linear_attention"


def minimax(fields: Fields) -> Architecture:
    """Read MiniMax-01 (arXiv 2501.08313): Mixtral with lightning attention in most layers and residuals after norms."""
    arch = mixtral(fields)
    kinds = read_layer_types(fields, arch.layers, (FULL, LINEAR))
    if kinds is None:
        kinds = [LINEAR if layer % 2 else FULL for layer in range(arch.layers)]
    linear = LinearLayers(
        block=fields.size("block_size", default=256), layers=tuple(kind == LINEAR for kind in kinds)
    )
    shared = fields.size("shared_intermediate_size", default=0, least=0)
    if shared:
        fields.unsupported("shared_intermediate_size", shared, "shared experts are not supported", "0")
    if not fields.flag("postnorm", True):
        fields.unsupported("postnorm", False, "residuals of what enters a norm are not supported", "true")
    windows = tuple(
        None if is_linear else window
        for is_linear, window in zip(linear.layers, arch.windows, strict=False)  # unequal ones are a problem
    )
    return replace(arch, windows=windows, linear=linear, residual_after_norm=True)


def minimax_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """Read MiniMax-01's arithmetic: Mixtral's routers; a sublayer's residual factors depend on its kind."""
    assert arch.linear is not None
    width = fields.size("rotary_dim", default=arch.head_dim)
    if width > arch.head_dim:
        rule = f"rotary_dim = {width} <= head_dim = {arch.head_dim}"
        fields.problem("rotary_dim", width, rule, str(arch.head_dim))
    rotary = read_rotary(rope_mapping(fields), arch, width=min(width, arch.head_dim))
    mixings = {
        kind: Mixing(
            stream=fields.number(f"{kind}_alpha_factor", default=1.0),
            part=fields.number(f"{kind}_beta_factor", default=1.0),
        )
        for kind in ("full_attn", "linear_attn", "mlp")
    }
    return replace(
        mixtral_numerics(fields, arch),
        rotary=tuple(None if linear else rotary for linear in arch.linear.layers),
        attention_mixing=tuple(
            mixings["linear_attn" if linear else "full_attn"] for linear in arch.linear.layers
        ),
        feedforward_mixing=mixings["mlp"],
        decay=HeadDecay(heads=arch.heads, layers=arch.layers),
    )
