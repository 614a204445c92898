"""Architectures that Megatron's GPT model (``pretrain_gpt.py``, megatron-core 0.19.2) has options for.

The kinds of activation and of biases are also what the exporter writes options from.
"""

from collections.abc import Iterator
from typing import Literal

from meshwright.model.architecture import Architecture

GPT_OSS = "gpt_oss"
CHUNKED = "llama4_text"
ActivationKind = Literal["gpt-oss", "swiglu", "squared-relu", "gelu", "gelu-tanh"]
BiasKind = Literal["none", "qkv", "all", "all with experts"]


def unsayable_model(arch: Architecture) -> Iterator[str]:
    """Yield what of an architecture has no option, each with what there are options for."""
    widths = window_widths(arch)
    for what, wrong, value, words in (
        ("norms per layer", arch.norms_per_layer != 2, arch.norms_per_layer, "2"),
        ("norms without weights", arch.norm == "bare-layernorm", "", "norms with weights"),
        ("a norm after the embedding", arch.embedding_norm, "", "a model without"),
        ("attention and feed-forward behind one norm", arch.parallel_parts, "", "one part after the other"),
        ("layers of one part", set(arch.parts) != {"both"}, "", "layers of attention and feed-forward"),
        ("a bias of the output projection", arch.head_bias, "", "a projection without"),
        ("positions", arch.positions == "alibi", arch.positions, "rope, learned or none"),
        (
            "activation",
            activation_kind(arch) is None,
            spoken_activation(arch),
            "swiglu, gelu or squared relu",
        ),
        ("biases", bias_kind(arch) is None, bias_facts(arch), "all, none, or only q, k and v"),
        ("a norm over the queries of all heads", arch.qk_norm_over_heads, "", "norms of heads"),
        ("chunked attention", arch.family == CHUNKED, "", "windows"),
        ("linear attention", arch.linear is not None, "", "attention with a softmax"),
        ("Mamba-2", arch.state_space is not None, "", "attention"),
        ("widths of windows", len(widths) > 1, sorted(widths), "one width"),
        ("rope_theta", not float(arch.rope_theta).is_integer(), arch.rope_theta, "a whole number"),
    ):
        if wrong:
            yield f"pretrain_gpt.py has no option for {what}{f' {value}' if value else ''}, only {words}"


def window_widths(arch: Architecture) -> set[int]:
    """Return the widths of the model's windows in positions."""
    return {window for window in arch.windows if window is not None}


def activation_kind(arch: Architecture) -> ActivationKind | None:
    """Return the activation by what Megatron has; None where it does not."""
    name = arch.activation.lower()
    if arch.family == GPT_OSS:
        return "gpt-oss"
    if arch.gated:
        return "swiglu" if name in ("silu", "swish", "swiglu") else None
    if name in ("relu2", "squared_relu"):
        return "squared-relu"
    if name == "gelu":
        return "gelu"
    return "gelu-tanh" if name.startswith("gelu_") else None


def spoken_activation(arch: Architecture) -> str:
    """Return the activation in words."""
    return f"gated {arch.activation}" if arch.gated else arch.activation


def bias_facts(arch: Architecture) -> dict[str, bool]:
    """Return the linear layers that have a bias; feed-forward parts only if some layer has them."""
    facts = {"qkv": arch.qkv_bias, "output": arch.output_bias}
    if arch.moe is None or not all(arch.moe.layers):
        facts["mlp"] = arch.mlp_bias
    if arch.moe is not None:
        facts |= {"expert": arch.moe.expert_bias, "router": arch.moe.router_bias}
    return facts


def bias_kind(arch: Architecture) -> BiasKind | None:
    """Return which biases there are by what Megatron's two switches say; None where they cannot say it."""
    others = {bias for part, bias in bias_facts(arch).items() if part != "qkv"}
    if others == {False}:
        return "qkv" if arch.qkv_bias else "none"
    if others == {True} and arch.qkv_bias and not (arch.moe and arch.moe.shared_intermediate):
        return "all with experts" if arch.moe else "all"
    return None
