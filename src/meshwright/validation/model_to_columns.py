"""A model as columns of a table of runs: its shape, and its facts that no column expresses.

``validation/run_model.py`` builds a model from these columns again. What they omit (norms of
queries and keys, windows, layers without experts) comes from a configuration: the zoo's, or that in the model's
own folder.
"""

from dataclasses import fields, replace
from typing import Any

from meshwright.model.architecture import Architecture
from meshwright.stack.load import load_stack
from meshwright.validation.read_run_table import SettingColumns
from meshwright.validation.run_model import from_columns

SHAPE = (
    *("layers", "hidden", "ffn_hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab"),
    *("experts", "experts_per_token", "tied_embeddings"),
)
"""The columns of a model, in the order of the table."""
PLAIN_WORDS = ("relu2", "relu", "gelu")
UNPRICED = (
    *("name", "family", "source", "activation", "max_positions", "rope_theta", "norm_epsilon", "assumed"),
    *("left_out", "numerics", "positions"),
)
"""Facts of an architecture that no prediction depends on, except learned positions."""
SOMEWHERE: dict[str, Any] = {"seq_len": 1, "global_batch": 1, "device": "", "devices": 1}
"""Placeholders for the columns of a run that do not describe its model."""


def model_columns(arch: Architecture) -> dict[str, int | bool | str]:
    """Return the columns of a model, JSON-ready."""
    moe, latent = arch.moe, arch.latent is not None
    found: dict[str, int | bool | str | None] = {
        "layers": arch.layers,
        "hidden": arch.hidden,
        "ffn_hidden": moe.intermediate if moe else arch.intermediate,
        "ffn": _feed_forward(arch),
        "heads": arch.heads,
        "kv_heads": None if latent else arch.kv_heads,
        "head_dim": "mla" if latent else arch.head_dim,
        "vocab": arch.vocab,
        "experts": moe.experts if moe else None,
        "experts_per_token": moe.experts_per_token if moe else None,
        "tied_embeddings": arch.tied_embeddings,
    }
    return {name: value for name, value in found.items() if value is not None}


def facts_without_column(arch: Architecture) -> tuple[str, ...]:
    """Return the names of a model's facts that no column expresses and that cost time or memory."""
    columns = model_columns(arch)
    if arch.latent is not None or "ffn" not in columns:
        return ("latent",) if arch.latent else ("ffn",)
    unset: dict[str, Any] = dict.fromkeys(field.name for field in fields(SettingColumns))
    given = SettingColumns(**unset | SOMEWHERE | columns)
    built = from_columns(given, replace(load_stack("generic"), dropout=arch.dropout))
    names = [f.name for f in fields(Architecture) if f.name not in UNPRICED]
    unsaid = [name for name in names if getattr(arch, name) != getattr(built, name)]
    return (*unsaid, *(["positions"] if arch.positions == "learned" else []))


def _feed_forward(arch: Architecture) -> str | None:
    """Return the table's word for the kind of feed-forward layer; None if it has none."""
    if arch.gated:
        return "geglu" if "gelu" in arch.activation else "swiglu"
    return next((word for word in PLAIN_WORDS if word in arch.activation), None)
