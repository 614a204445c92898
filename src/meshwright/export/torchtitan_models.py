"""The models that torchtitan 0.3.0 ships, by shape: an architecture → ``--module`` and ``--config``.

A torchtitan model is a Python function of its release, not a set of options; so a model is found by its facts
in ``options/torchtitan-0.3.0-models.csv`` (read from the release's ``config_registry`` functions), and what
is not there is refused. Quantised training is a part of the function too: the 405B configuration is always
float8.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture

TABLE = "torchtitan-0.3.0-models.csv"


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """One configuration function. ``shape`` holds the facts that must match; unsaid ones are left out."""

    module: str
    config: str
    precisions: tuple[str, ...]
    families: tuple[str, ...]
    context_parallel: bool
    shape: dict[str, str]

    def has_shape_of(self, arch: Architecture) -> bool:
        """Whether family and all known facts are those of ``arch``."""
        facts = _facts(arch)
        return arch.family in self.families and all(facts[k] == v for k, v in self.shape.items())


def shipped_models() -> tuple[ShippedModel, ...]:
    """All rows of the table."""
    path = files("meshwright.export").joinpath("options", TABLE)
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return tuple(_model(row) for row in rows)


def find_model(arch: Architecture, precision: str) -> ShippedModel | Problem:
    """The configuration for ``arch`` in ``precision``, or why there is none."""
    shaped = [model for model in shipped_models() if model.has_shape_of(arch)]
    fitting = [model for model in shaped if precision in model.precisions]
    if fitting:
        return fitting[0]
    if shaped:
        known = sorted({p for model in shaped for p in model.precisions})
        rule = f"torchtitan 0.3.0 trains {arch.name} by command line in {', '.join(known)} only"
        return Problem("workload.precision", precision, rule, f"precision: {known[0]}")
    rule = "torchtitan 0.3.0 has no configuration of this shape"
    return Problem("model", arch.name, rule, "one of " + ", ".join(m.config for m in shipped_models()))


def _model(row: dict[str, str]) -> ShippedModel:
    named = {key: row.pop(key) for key in ("module", "config", "precision", "families", "context_parallel")}
    return ShippedModel(
        module=named["module"],
        config=named["config"],
        precisions=tuple(named["precision"].split()),
        families=tuple(named["families"].split()),
        context_parallel=named["context_parallel"] == "true",
        shape={key: value for key, value in row.items() if value},
    )


def _facts(arch: Architecture) -> dict[str, str]:
    """The facts of ``arch`` in the table's columns; absent parts are empty."""
    moe, latent = arch.moe, arch.latent
    routed = sum(moe.layers) if moe else 0
    facts: dict[str, object] = {
        "layers": arch.layers,
        "dense_layers": arch.layers - routed,
        "hidden": arch.hidden,
        "vocab": arch.vocab,
        "tied_embeddings": str(arch.tied_embeddings).lower(),
        "heads": arch.heads,
        "kv_heads": arch.kv_heads,
        "head_dim": arch.head_dim,
        "intermediate": arch.intermediate,
        "q_rank": (latent.q_rank or "") if latent else "",
        "kv_rank": latent.kv_rank if latent else "",
        "experts": moe.experts if moe else "",
        "experts_per_token": moe.experts_per_token if moe else "",
        "expert_intermediate": moe.intermediate if moe else "",
        "shared_intermediate": moe.shared_intermediate if moe else "",
    }
    return {key: str(value) for key, value in facts.items()}
