"""Read Nemotron-H (arXiv 2504.03624) and Nemotron 3: layers that are Mamba-2, attention, or a feed-forward part alone.

Keys and defaults are those of transformers 5.23 (``models/nemotron_h``). ``hybrid_override_pattern`` has a letter for
each layer, ``layers_block_type`` a word. Every layer has one norm; feed-forward parts are not gated, experts have no
biases, and positions are not rotated.
"""

from collections.abc import Sequence
from dataclasses import replace

from meshwright.model.architecture import Architecture, LayerParts, StateSpaceLayers
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_decoders import attention_biases, decoder, has_dropout
from meshwright.model.families.moe_decoders import read_experts

PATTERN, WORDS = "hybrid_override_pattern", ("layers_block_type", "layer_types")
STATE_SPACE, ATTENTION, EXPERTS, DENSE = "mamba", "attention", "moe", "mlp"
LETTERS = {"M": STATE_SPACE, "*": ATTENTION, "E": EXPERTS, "-": DENSE}
KINDS = {kind: kind for kind in LETTERS.values()} | {
    "linear_attention": STATE_SPACE,
    "full_attention": ATTENTION,
}
"""Kinds of layers by their names, older and newer."""
WITHOUT_MIXER = (EXPERTS, DENSE)


def nemotron_h(fields: Fields) -> Architecture:
    """Read Nemotron-H: every layer has one of its parts."""
    kinds = _kinds(fields)
    fields.assume(
        num_hidden_layers=max(1, len(kinds)),
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=21504,
        max_position_embeddings=4096,
        layer_norm_epsilon=1e-5,
        mlp_hidden_act="relu2",
    )
    fields.assume(hidden_act=fields.text("mlp_hidden_act", default="relu2"))
    arch = attention_biases(fields, decoder(fields))
    _refuse_other_layers(fields)
    if fields.sound("num_hidden_layers", PATTERN, *WORDS) and len(kinds) != arch.layers:
        rule = f"{len(kinds)} kinds of layers must be num_hidden_layers = {arch.layers}"
        fields.problem("num_hidden_layers", arch.layers, rule, f"{len(kinds)}, or a kind for each layer")
    parts: tuple[LayerParts, ...] = tuple(
        "feed-forward" if kind in WITHOUT_MIXER else "mixer" for kind in kinds
    )
    further = fields.size("num_nextn_predict_layers", default=0, least=0, most=LARGEST_COUNT)
    text = f"num_nextn_predict_layers = {further}: layers that predict further tokens"
    arch = replace(
        arch,
        gated=False,
        positions="none",
        intermediate=arch.intermediate if DENSE in kinds else 0,
        mlp_bias=fields.flag("mlp_bias", False),
        dropout=has_dropout(fields, "hidden_dropout", "attention_dropout", default=0.0),
        layer_parts=parts,
        left_out=(text,) if further else (),
    )
    if EXPERTS in kinds:
        arch = _with_experts(fields, arch, tuple(kind == EXPERTS for kind in kinds))
    if STATE_SPACE in kinds:
        layers = tuple(kind == STATE_SPACE for kind in kinds)
        arch = replace(arch, state_space=_state_space(fields, layers))
    return arch


def _kinds(fields: Fields) -> tuple[str, ...]:
    """Read the kind of each layer, by letters or by words."""
    words = next((key for key in WORDS if fields.has(key)), None)
    if words is not None:
        return _known(fields, words, fields.items(words, lambda kind: isinstance(kind, str), "words") or ())
    if not fields.has(PATTERN):
        rule = f"{PATTERN} or {WORDS[0]} must say of which kind each layer is"
        fields.problem(PATTERN, None, rule, 'such as "MEM*E": M for Mamba-2, * attention, E experts, - dense')
        return ()
    return _known(
        fields, PATTERN, [LETTERS.get(letter, letter) for letter in fields.text(PATTERN, default="*")]
    )


def _known(fields: Fields, key: str, kinds: Sequence[str]) -> tuple[str, ...]:
    for kind in sorted(set(kinds) - set(KINDS)):
        rule = f"layers of kind {kind} are not supported"
        fields.unsupported(key, kind, rule, "supported are " + ", ".join((*LETTERS, *KINDS)))
    return tuple(KINDS.get(kind, ATTENTION) for kind in kinds)


def _refuse_other_layers(fields: Fields) -> None:
    """Refuse keys that change shapes and that no released model of this size sets."""
    for key in ("use_bias", "mamba_proj_bias"):
        if fields.flag(key, False):
            rule = "biases of Mamba-2's projections are not supported"
            fields.unsupported(key, True, rule, "false")
    for key, what in (
        ("moe_latent_size", "experts in a narrower space are"),
        ("sliding_window", "windows are"),
    ):
        size = fields.optional_size(key)
        if size is not None:
            fields.unsupported(key, size, f"{what} not supported", "null")


def _with_experts(fields: Fields, arch: Architecture, layers: tuple[bool, ...]) -> Architecture:
    """Add routed experts with a correction of their scores, and a shared expert."""
    fields.assume(
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=7688,
        moe_shared_expert_intermediate_size=7688,
    )
    moe = read_experts(fields, "n_routed_experts", "num_local_experts", layers=len(layers))
    shared = fields.size("moe_shared_expert_intermediate_size")
    return replace(arch, moe=replace(moe, shared_intermediate=shared, layers=layers, router_correction=True))


def _state_space(fields: Fields, layers: tuple[bool, ...]) -> StateSpaceLayers:
    heads, groups = fields.size("mamba_num_heads", default=128), fields.size("n_groups", default=8)
    fields.divides("mamba_num_heads", heads, "n_groups", groups, "a group serves as many heads")
    return StateSpaceLayers(
        heads=heads,
        head_dim=fields.size("mamba_head_dim", default=64),
        state=fields.size("ssm_state_size", default=128),
        groups=groups,
        filter_length=fields.size("conv_kernel", default=4),
        filter_bias=fields.flag("use_conv_bias", True),
        block=fields.size("chunk_size", default=128),
        layers=layers,
    )
