"""Build the model of a run from its columns and the configuration that it names, if any.

That is the configuration at a local path, else a released model's; a hub is never asked. A name is
compared letter by letter and digit by digit, without remarks in brackets, hubs' owners and endings such as
``-instruct``; ``ALIASES`` maps names of releases with the same shape. The columns win over the configuration. If
the table has fewer layers than the model (a proxy), sliding windows keep their pattern and leading dense layers of a
mixture of experts their share, rounded up. ``next_token_layers`` are added to ``layers``. Columns of another kind than
the configuration (experts or none, latent attention or none) discard it.

Without a configuration: GELU networks have layer norms and biases, gated ones root-mean-square norms and none;
positions cost nothing; dropout follows the stack's recipes for GPT models.
"""

import re
from dataclasses import replace
from functools import cache
from typing import TypeVar

from meshwright.errors import InputError, Problem
from meshwright.model.architecture import Architecture, Experts
from meshwright.model.load import load_model
from meshwright.model.local_path import model_path
from meshwright.model.operators.multi_token_prediction import with_prediction_layers
from meshwright.model.zoo_names import letters, zoo_names
from meshwright.stack.stack import Stack
from meshwright.validation.read_run_table import LATENT, SettingColumns

T = TypeVar("T")
GATED = ("swiglu", "geglu")
REMARK = re.compile(r"\([^)]*\)?")
ENDINGS = re.compile(r"-(instruct|base|chat|hf|it)$")
ALIASES = {
    "llama3405b": "llama-3.1-405b",
    "llama70b": "llama-2-70b",
    "llama3.370b": "llama-3.1-70b",
    "gpt3": "gpt-3-175b",
    "qwen330b": "qwen3-30b-a3b",
    "qwen3235b": "qwen3-235b-a22b",
    "deepseekv2236b": "deepseek-v2",
    "deepseekv3671b": "deepseek-v3",
    "deepseekr1": "deepseek-v3",
    "deepseekr10528": "deepseek-v3",
    "kimik21t": "kimi-k2",
    "mistral7b": "mistral-7b-v0.3",
    "nemotronnano30b": "nemotron-3-nano-30b-a3b",
    "nvidianemotron3nano30ba3b": "nemotron-3-nano-30b-a3b",
}
NEEDED = ("layers", "hidden", "ffn_hidden", "ffn", "heads", "vocab")


def released_model_name(name: str) -> str | None:
    """Return the zoo's name of a released model, None for any other."""
    return _released_names().get(_letters(name))


@cache
def _released_names() -> dict[str, str]:
    return ALIASES | {_letters(name): name for name in zoo_names()}


def _letters(name: str) -> str:
    plain = REMARK.sub("", name.lower()).strip().replace(" ", "-").replace("_", "-").rpartition("/")[2]
    return letters(re.sub(r"\.0(?=b)", "", ENDINGS.sub("", plain)))


def local_model(name: str) -> Architecture | None:
    """Return the configuration at a local path; None for any other name."""
    if "/" not in name or model_path(name) is None:
        return None
    try:
        return load_model(name).architecture
    except InputError:
        return None


def configured(name: str) -> Architecture | None:
    """Return the configuration that a name means: at this path, else the released model's."""
    released = released_model_name(name)
    return local_model(name) or (load_model(released).architecture if released else None)


def is_absent(name: str) -> bool:
    """Return whether a name is an absolute path without a configuration."""
    return name.startswith("/") and model_path(name) is None


def architecture(given: SettingColumns, stack: Stack) -> Architecture:
    """Return the model of a run. Raises InputError for missing facts, and for impossible shapes."""
    base = _configuration(given)
    arch = from_columns(given, stack) if base is None else _laid_over(given, base)
    if arch.latent is None and arch.heads % arch.kv_heads:
        rule = f"heads % kv_heads = {arch.heads} % {arch.kv_heads} = {arch.heads % arch.kv_heads} ≠ 0"
        raise InputError(Problem("kv_heads", arch.kv_heads, rule))
    if arch.moe and not 1 <= arch.moe.experts_per_token <= arch.moe.experts:
        rule = f"must be from 1 to experts = {arch.moe.experts}"
        raise InputError(Problem("experts_per_token", arch.moe.experts_per_token, rule))
    return with_prediction_layers(arch, given.next_token_layers) if given.next_token_layers else arch


def _configuration(given: SettingColumns) -> Architecture | None:
    """Return the named model's architecture unless the columns describe another kind of model."""
    arch = configured(given.model or "")
    if arch is None:
        return None
    other_experts = given.experts is not None and (given.experts > 1) != (arch.moe is not None)
    other_attention = given.head_dim is not None and (given.head_dim == LATENT) != (arch.latent is not None)
    return None if other_experts or other_attention else arch


def from_columns(given: SettingColumns, stack: Stack) -> Architecture:
    """Return a model from its columns alone. Raises InputError with the missing ones."""
    missing = [name for name in NEEDED if getattr(given, name) is None]
    routed = (given.experts or 0) > 1
    missing += ["experts_per_token"] if routed and given.experts_per_token is None else []
    missing += ["head_dim"] if given.head_dim == LATENT else []
    if missing:
        rule = "not given, and no released model of that name is known"
        if is_absent(given.model or ""):
            rule = f"not given, and {given.model} is not there"
        raise InputError([Problem(name, getattr(given, name), rule) for name in missing])
    layers, hidden, heads, width = (
        int(getattr(given, n)) for n in ("layers", "hidden", "heads", "ffn_hidden")
    )
    gated = given.ffn in GATED
    head_dim = given.head_dim or _even_head_dim(hidden, heads)
    experts = Experts(
        experts=given.experts or 0,
        experts_per_token=given.experts_per_token or 0,
        intermediate=width,
        layers=(True,) * layers,
    )
    return Architecture(
        name=given.model or "unnamed",
        family="columns",
        source="columns of a table of runs",
        layers=layers,
        hidden=hidden,
        vocab=given.vocab or 0,
        heads=heads,
        kv_heads=given.kv_heads or heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        intermediate=0 if routed else width,
        gated=gated,
        activation=given.ffn or "",
        norm="rmsnorm" if gated else "layernorm",
        qkv_bias=not gated,
        output_bias=not gated,
        mlp_bias=not gated,
        dropout=stack.dropout and not gated,
        positions="none",
        max_positions=given.seq_len,
        tied_embeddings=bool(given.tied_embeddings),
        moe=experts if routed else None,
        windows=(None,) * layers,
    )


def _even_head_dim(hidden: int, heads: int) -> int:
    if hidden % heads:
        rule = f"hidden % heads = {hidden} % {heads} = {hidden % heads} ≠ 0, and head_dim is not given"
        raise InputError(Problem("heads", heads, rule))
    return hidden // heads


def _laid_over(given: SettingColumns, base: Architecture) -> Architecture:
    """Return a released model with the columns in place of its own numbers."""
    layers, heads, hidden = (
        given.layers or base.layers,
        given.heads or base.heads,
        given.hidden or base.hidden,
    )
    same_heads = heads == base.heads and (hidden == base.hidden or base.head_dim * base.heads != base.hidden)
    head_dim = given.head_dim or (
        base.head_dim if same_heads or base.latent else _even_head_dim(hidden, heads)
    )
    routed = base.moe is not None
    width = None if routed else given.ffn_hidden
    return replace(
        base,
        layers=layers,
        hidden=hidden,
        vocab=given.vocab or base.vocab,
        heads=heads,
        kv_heads=heads if base.latent else given.kv_heads or (base.kv_heads if same_heads else heads),
        head_dim=head_dim,
        v_head_dim=base.v_head_dim if base.latent else head_dim,
        intermediate=width or base.intermediate,
        gated=base.gated if given.ffn is None else given.ffn in GATED,
        tied_embeddings=base.tied_embeddings if given.tied_embeddings is None else given.tied_embeddings,
        max_positions=max(base.max_positions, given.seq_len),
        windows=_repeated(base.windows, layers),
        layer_parts=_repeated(base.layer_parts, layers),
        linear=base.linear and replace(base.linear, layers=_repeated(base.linear.layers, layers)),
        state_space=base.state_space
        and replace(base.state_space, layers=_repeated(base.state_space.layers, layers)),
        moe=_experts(given, base.moe, _routed(base, base.moe, layers)) if base.moe else None,
    )


def _repeated(pattern: tuple[T, ...], layers: int) -> tuple[T, ...]:
    """Return the pattern of a model's layers for another number of them; empty where there is none."""
    return tuple(pattern[i % len(pattern)] for i in range(layers)) if pattern else ()


def _routed(base: Architecture, moe: Experts, layers: int) -> tuple[bool, ...]:
    """Return the routed ones of ``layers``; leading dense layers keep their share where every layer has both parts."""
    routed = _repeated(moe.layers, layers)
    if layers != len(moe.layers) and True in moe.layers and not base.layer_parts:
        lead = moe.layers.index(True)
        dense = -(-lead * layers // len(moe.layers))
        rest = moe.layers[lead:]
        routed = (False,) * dense + tuple(rest[i % len(rest)] for i in range(layers - dense))
    return routed


def _experts(given: SettingColumns, moe: Experts, routed: tuple[bool, ...]) -> Experts:
    return replace(
        moe,
        experts=given.experts or moe.experts,
        experts_per_token=given.experts_per_token or moe.experts_per_token,
        intermediate=given.ffn_hidden or moe.intermediate,
        layers=routed,
    )
