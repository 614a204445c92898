"""Read the arithmetic of dense decoders: one reader for each family, after its shapes.

Shapes are read in ``model/families/dense_decoders.py``. Keys and defaults are those of transformers 5.23
(``configuration_*.py`` and ``modeling_*.py`` of each family).
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.families.config_fields import Fields
from meshwright.model.families.rotary_fields import (
    ORIGINAL,
    read_rotary,
    read_rotated_layers,
    rope_mapping,
)
from meshwright.model.numerics import ActivationKind, Mixing, Numerics, QueryGrowth
from meshwright.model.rotary import Rotary, Yarn

ACTIVATIONS: dict[str, ActivationKind] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_accurate": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
}

# A text tower's three position grids (time, height, width) are one and the same for text.
OTHER_ROTATIONS = {
    "phi3": {"su": "longrope", "yarn": "longrope"},
    "qwen2_5_vl": {"mrope": "default"},
    "qwen2_5_vl_text": {"mrope": "default"},
}


def decoder_numerics(fields: Fields, arch: Architecture, rotary: Rotary | None) -> Numerics:
    """Return numerics with all layers alike and scores divided by √head_dim."""
    return Numerics(
        activation=read_activation(fields, arch.activation),
        rotary=(rotary,) * arch.layers,
        attention_scales=(arch.head_dim**-0.5,) * arch.layers,
    )


def read_activation(fields: Fields, name: str, key: str = "hidden_act") -> ActivationKind:
    """Return the activation that transformers calls ``name``; ``key`` holds it."""
    if name not in ACTIVATIONS:
        rule = "this activation is not supported"
        fields.unsupported(key, name, rule, "supported are " + ", ".join(ACTIVATIONS))
    return ACTIVATIONS.get(name, "silu")


def rotation(
    fields: Fields, arch: Architecture, rope: Fields, *, width: int | None = None, interleaved: bool = False
) -> Rotary:
    """Read the rotation of whole heads; ``width`` is the rotatable part of a head, None: all of it."""
    share = rotated_share(fields, rope, 1.0)
    if share != 1:
        rule = f"models of type {arch.family} rotate whole heads"
        fields.unsupported("partial_rotary_factor", share, rule, "leave partial_rotary_factor out")
    if fields.has(ORIGINAL):
        _agree(fields, rope, arch.max_positions)
    names = OTHER_ROTATIONS.get(arch.family, {})
    return read_rotary(rope, arch, width=width, interleaved=interleaved, other_names=names)


def _agree(fields: Fields, rope: Fields, default: int) -> None:
    """Check that the original length at the top level equals the rotation's: programs differ in which one they use."""
    top, inner = fields.size(ORIGINAL), rope.size(ORIGINAL, default=default)
    if top != inner:
        rule = f"{top} at the top, {inner} in the rotation"
        fields.unsupported(ORIGINAL, top, rule, f"say {ORIGINAL} in rope_parameters only")


def rotated_share(fields: Fields, rope: Fields, default: float) -> float:
    """Read the fraction of a head that is rotated."""
    top = fields.number("partial_rotary_factor", default=default, positive=True)
    share = rope.number("partial_rotary_factor", default=top, positive=True)
    if share <= 1:
        return share
    fields.problem("partial_rotary_factor", share, "0 < partial_rotary_factor <= 1", str(default))
    return default


def llama(fields: Fields, arch: Architecture) -> Numerics:
    """Read the plain decoder: Llama, Mistral, Qwen and the text towers of Qwen-VL, StarCoder2."""
    return decoder_numerics(fields, arch, rotation(fields, arch, rope_mapping(fields)))


def granite(fields: Fields, arch: Architecture) -> Numerics:
    """Read Granite: Llama with four multipliers."""
    scale = fields.number("attention_multiplier", default=1.0, positive=True)
    mixing = Mixing(part=fields.number("residual_multiplier", default=1.0, positive=True))
    return replace(
        llama(fields, arch),
        attention_scales=(scale,) * arch.layers,
        embedding_multiplier=fields.number("embedding_multiplier", default=1.0, positive=True),
        attention_mixing=(mixing,) * arch.layers,
        feedforward_mixing=mixing,
        logit_divisor=fields.number("logits_scaling", default=1.0, positive=True),
    )


def smollm3(fields: Fields, arch: Architecture) -> Numerics:
    """Read SmolLM3: some layers are not rotated."""
    numerics = llama(fields, arch)
    pairs = zip(numerics.rotary, read_rotated_layers(fields, arch.layers), strict=True)
    return replace(numerics, rotary=tuple(rotary if rotated else None for rotary, rotated in pairs))


def ministral3(fields: Fields, arch: Architecture) -> Numerics:
    """Read Ministral 3: queries grow with their position; the default rotation is Yarn by 16."""
    rope = rope_mapping(fields)
    if not (fields.has("rope_parameters") or fields.has("rope_scaling")):
        scaling = Yarn(factor=16.0, original_positions=16384, mscale=1.0, mscale_all_dim=1.0)
        rotary = replace(rotation(fields, arch, rope), scaling=scaling)
        return replace(
            decoder_numerics(fields, arch, rotary), query_growth=QueryGrowth(beta=0.1, positions=16384)
        )
    if not rope.has("llama_4_scaling_beta"):
        rope.problem("llama_4_scaling_beta", None, "llama_4_scaling_beta is missing", "add it; 0.0 for none")
    beta = rope.number("llama_4_scaling_beta", default=0.0)
    if beta and not rope.has(ORIGINAL):
        rope.problem(ORIGINAL, None, f"{ORIGINAL} is missing", "add it")
    growth = QueryGrowth(beta=beta, positions=rope.size(ORIGINAL, default=arch.max_positions))
    return replace(decoder_numerics(fields, arch, rotation(fields, arch, rope)), query_growth=growth)


def phi3(fields: Fields, arch: Architecture) -> Numerics:
    """Read Phi-3: a part of each head may be rotated; the original length is at the top level."""
    fields.assume(original_max_position_embeddings=4096)
    rope = rope_mapping(fields)
    rope.assume(original_max_position_embeddings=fields.size(ORIGINAL))
    _agree(fields, rope, arch.max_positions)
    share = rotated_share(fields, rope, 1.0)
    rotary = read_rotary(rope, arch, share=share, other_names=OTHER_ROTATIONS["phi3"])
    return decoder_numerics(fields, arch, rotary)


def ernie4_5(fields: Fields, arch: Architecture) -> Numerics:
    """Read dense ERNIE 4.5: heads are rotated in pairs of neighbours."""
    return decoder_numerics(fields, arch, rotation(fields, arch, rope_mapping(fields), interleaved=True))


def olmo(fields: Fields, arch: Architecture) -> Numerics:
    """Read OLMo: Llama, unless queries, keys and values are clipped."""
    if fields.has("clip_qkv"):
        limit = fields.number("clip_qkv", default=8.0, positive=True)
        fields.unsupported("clip_qkv", limit, "queries, keys and values are not clipped", "use null")
    return llama(fields, arch)


def stablelm(fields: Fields, arch: Architecture) -> Numerics:
    """Read StableLM: a quarter of each head is rotated."""
    rope = rope_mapping(fields)
    rotary = read_rotary(rope, arch, share=rotated_share(fields, rope, 0.25))
    return decoder_numerics(fields, arch, rotary)


def glm4(fields: Fields, arch: Architecture) -> Numerics:
    """Read GLM-4 and GLM-4-0414: half of each head is rotated, in pairs of neighbours."""
    rope = rope_mapping(fields)
    rotary = read_rotary(rope, arch, share=rotated_share(fields, rope, 0.5), interleaved=True)
    return decoder_numerics(fields, arch, rotary)
