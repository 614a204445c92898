"""The layers of an encoder as chains of operators: those of a decoder over the encoder's own tokens and stream.

Each reads the encoder's stream of the stage and publishes the next one. Attention sees tokens on both sides, of the
whole text with scores by relative position, or of an image or window.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.numerics import Mixing, Numerics
from meshwright.model.operators.attention import attention_part
from meshwright.model.operators.data_flow import ENCODER, ENCODER_BIAS
from meshwright.model.operators.feedforward import feedforward_part
from meshwright.model.operators.operator_types import Attention, Operator, Residual


def encoder_architecture(arch: Architecture) -> Architecture:
    """Return the shapes of an encoder's layers as those of a decoder of its own; of a text encoder the decoder's."""
    encoder = arch.encoder
    if isinstance(encoder, TextEncoder):
        return replace(
            arch, numerics=_numerics(arch.numerics, encoder.layers, arch.numerics.attention_scales[:1])
        )
    if encoder is None:
        return arch
    return replace(
        arch,
        hidden=encoder.hidden,
        heads=encoder.heads,
        kv_heads=encoder.heads,
        head_dim=encoder.head_dim,
        v_head_dim=encoder.head_dim,
        intermediate=encoder.intermediate,
        norm_epsilon=encoder.norm_epsilon,
        norm="rmsnorm",
        norms_per_layer=2,
        gated=True,
        qk_norm=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        residual_after_norm=False,
        numerics=_numerics(arch.numerics, encoder.layers, (encoder.head_dim**-0.5,)),
    )


def _numerics(numerics: Numerics, layers: int, scale: tuple[float, ...]) -> Numerics:
    """Return the arithmetic of an encoder's layers: the decoder's, without its rotation and factors."""
    return replace(
        numerics,
        rotary=(None,) * layers,
        rotary_sections=(),
        attention_scales=scale * layers,
        attention_soft_cap=None,
        attention_mixing=(),
        feedforward_mixing=Mixing(),
        query_growth=None,
        alibi_slopes=(),
    )


def encoder_layer(arch: Architecture, layer: int) -> tuple[Operator, ...]:
    """Return the operators of one layer of a model's encoder."""
    own = encoder_architecture(arch)
    chain = (*attention_part(own, None), *feedforward_part(own, None))
    return tuple(_of_encoder(op, arch, layer, first=op is chain[0], last=op is chain[-1]) for op in chain)


def _of_encoder(op: Operator, arch: Architecture, layer: int, *, first: bool, last: bool) -> Operator:
    """Return an operator of a decoder layer as one over the encoder's tokens."""
    op = replace(op, tokens="encoder", publishes=ENCODER if last else "")
    if first:
        return replace(op, reads=(ENCODER,))
    if isinstance(op, Residual) and not last:
        return replace(op, stream=ENCODER)
    if not isinstance(op, Attention):
        return op
    if isinstance(arch.encoder, VisionEncoder):
        whole, side = arch.encoder.whole_image[layer], arch.encoder.window
        return replace(
            op, causal=False, keys="encoder", merge=arch.encoder.merge, side=None if whole else side
        )
    return replace(op, causal=False, keys="encoder", biased=True, reads=("qkv", ENCODER_BIAS))


def has_text_encoder(arch: Architecture) -> bool:
    """Return true for a model whose decoder attends to the result of a text encoder."""
    return isinstance(arch.encoder, TextEncoder)
