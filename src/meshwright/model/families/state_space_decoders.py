"""Read decoders with a recurrent state in most layers, as transformers writes them.

Granite 4.0 H (``granitemoehybrid``) has Mamba-2, Qwen3.5 Gated DeltaNet.
Keys and defaults are those of transformers 5.23 (``models/granitemoehybrid``). A layer is Mamba-2 or attention,
followed by a dense feed-forward part. Every released model has one group of B and C, and no rotation.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture, StateSpaceLayers
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_decoders import attention_biases, decoder, read_layer_types
from meshwright.model.families.dense_numerics import decoder_numerics, granite
from meshwright.model.families.moe_decoders import qwen3_moe
from meshwright.model.numerics import Numerics

ATTENTION, STATE_SPACE = ("attention", "full_attention"), ("mamba", "linear_attention")
"""The names of a kind of layers: the older one, and the one of transformers 5."""
ROTATED = "rope"
LIMIT = "time_step_limit"


def granitemoehybrid(fields: Fields) -> Architecture:
    """Read Granite 4.0 H: Granite with Mamba-2 in most layers; ``shared_intermediate_size`` is its feed-forward's."""
    fields.assume(num_local_experts=8, shared_intermediate_size=1024, intermediate_size=11008)
    experts = fields.size("num_local_experts", default=0, least=0, most=LARGEST_COUNT)
    if experts:
        rule = "routed experts beside Mamba-2 are not supported"
        fields.unsupported("num_local_experts", experts, rule, "0, as in granite-4.0-h-micro")
    arch = attention_biases(fields, decoder(fields))
    positions = fields.text("position_embedding_type", default="nope")
    return replace(
        arch,
        intermediate=fields.size("shared_intermediate_size"),
        positions="rope" if positions == ROTATED else "none",
        state_space=_state_space(fields, arch),
    )


def qwen3_5_moe(fields: Fields) -> Architecture:
    """Read Qwen3.5 with experts: Gated DeltaNet in most layers, a gate on what attention returns in the others.

    Key heads are the groups of a state space, values its heads; kernels process 64 positions at a time
    (flash-linear-attention). ``mtp_num_hidden_layers`` are left out.
    """
    fields.assume(shared_expert_intermediate_size=512, num_key_value_heads=2, head_dim=256)
    fields.assume(intermediate_size=512)  # of dense layers, which no released model has
    arch = qwen3_moe(fields)
    kinds = read_layer_types(fields, arch.layers, (*ATTENTION, *STATE_SPACE))
    every = fields.size("full_attention_interval", default=4)
    recurrent = tuple(
        kinds[layer] in STATE_SPACE if kinds else (layer + 1) % every != 0
        for layer in range(len(kinds or arch.windows))
    )
    delta = StateSpaceLayers(
        heads=fields.size("linear_num_value_heads", default=32),
        head_dim=fields.size("linear_value_head_dim", default=128),
        state=fields.size("linear_key_head_dim", default=128),
        groups=fields.size("linear_num_key_heads", default=16),
        filter_length=fields.size("linear_conv_kernel_dim", default=4),
        filter_bias=False,
        block=64,
        layers=recurrent,
        delta_rule=True,
    )
    fields.divides(
        "linear_num_value_heads",
        delta.heads,
        "linear_num_key_heads",
        delta.groups,
        "a key serves as many values",
    )
    further = fields.size("mtp_num_hidden_layers", default=0, least=0)
    text = f"mtp_num_hidden_layers = {further}: layers that predict further tokens"
    shared = fields.size("shared_expert_intermediate_size")
    return replace(
        arch,
        attention_gate=fields.flag("attn_output_gate", True),
        moe=None if arch.moe is None else replace(arch.moe, shared_intermediate=shared, shared_gate=True),
        state_space=delta if any(recurrent) else None,
        left_out=(text,) if further else (),
    )


def _state_space(fields: Fields, arch: Architecture) -> StateSpaceLayers | None:
    """Read the Mamba-2 layers; None if all layers have attention."""
    kinds = read_layer_types(fields, arch.layers, (*ATTENTION, *STATE_SPACE))
    layers = tuple(
        kinds is None or kinds[layer] in STATE_SPACE for layer in range(len(kinds or arch.windows))
    )
    if not any(layers):
        return None
    groups = fields.size("mamba_n_groups", default=1)
    if groups != 1:
        fields.unsupported("mamba_n_groups", groups, "only one group of B and C is supported", "1")
    if fields.flag("mamba_proj_bias", False):
        fields.unsupported(
            "mamba_proj_bias", True, "biases of Mamba-2's projections are not supported", "false"
        )
    heads, head_dim = _heads(fields, fields.size("mamba_expand", default=2) * arch.hidden)
    return StateSpaceLayers(
        heads=heads,
        head_dim=head_dim,
        state=fields.size("mamba_d_state", default=256),
        filter_length=fields.size("mamba_d_conv", default=4),
        filter_bias=fields.flag("mamba_conv_bias", True),
        block=fields.size("mamba_chunk_size", default=256),
        layers=layers,
    )


def _heads(fields: Fields, width: int) -> tuple[int, int]:
    """Read number and width of the heads, which are ``width`` elements together."""
    heads = fields.size("mamba_n_heads", default=128)
    head_dim = fields.optional_size("mamba_d_head", "auto") or max(1, width // heads)
    if (
        fields.sound("mamba_n_heads", "mamba_d_head", "mamba_expand", "hidden_size")
        and heads * head_dim != width
    ):
        rule = f"mamba_n_heads · mamba_d_head = {heads} · {head_dim} must be mamba_expand · hidden_size = {width}"
        fields.problem(
            "mamba_n_heads", heads, rule, "heads that divide the width, and mamba_d_head = width / heads"
        )
    return heads, head_dim


def granitemoehybrid_numerics(fields: Fields, arch: Architecture) -> Numerics:
    """Read Granite 4.0 H's arithmetic: Granite's multipliers; no rotation unless the file asks for one."""
    limit = fields.items(LIMIT, lambda number: isinstance(number, int | float), "two numbers")
    if limit is not None and tuple(limit) != (0.0, float("inf")):
        rule = "limits of the step Δ are not supported"
        fields.unsupported(LIMIT, str(limit), rule, "leave it out")
    if arch.state_space is not None and arch.activation != "silu":
        rule = "Mamba-2 with another activation than silu is not supported"
        fields.unsupported("hidden_act", arch.activation, rule, "silu")
    numerics = granite(fields, arch)
    if arch.positions == ROTATED and arch.state_space is None:
        return numerics
    if arch.positions != ROTATED:
        return replace(numerics, rotary=decoder_numerics(fields, arch, None).rotary)
    pairs = zip(numerics.rotary, arch.mixers, strict=True)
    return replace(numerics, rotary=tuple(rotary if mixer == "softmax" else None for rotary, mixer in pairs))
