"""Overrides of Megatron-Bridge as data, read by rules written here and not taken from the exporter."""

import json
import re
from collections.abc import Iterator
from typing import Any

from export_cases import Case
from ruamel.yaml import YAML

from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.megatron_bridge.exporting.exporter import export_bridge

MODELS = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "gpt-3-175b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "gpt-oss-20b",
    "gemma-2-9b",
)
LETTERS = {"E": "embedding", "t": "decoder", "m": "mtp", "L": "loss"}


def exported(this: Case) -> Export:
    """The files of a case for Bridge."""
    return export_bridge(this.plan, this.model, this.cluster, this.stack)


def overrides(export: Export) -> dict[str, Any]:
    """The tree, as a reader of YAML 1.1 sees it: Bridge's is one."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return yaml.load(export.files["bridge/overrides.yaml"])


def dotted(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Every field with its value."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def words(tree: dict[str, Any]) -> str:
    """The fields as words of Hydra on the command line of Bridge's own runner."""
    pairs = (f"'{path}={_hydra(value)}'" for path, value in dotted(tree))
    return "torchrun scripts/training/run_recipe.py " + " ".join(pairs)


def _hydra(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][\w.]*", value):
        return json.dumps(value)
    return value if isinstance(value, str) else json.dumps(value)


def recipe(export: Export) -> str:
    """The recipe that launch.sh names."""
    (found,) = re.findall(r'run\.py" \\\n +(\w+) ', export.files["bridge/launch.sh"])
    return found


def stage_counts(model: dict[str, Any], layers: int) -> list[int]:
    """Layers per stage as Megatron-Core reads these fields."""
    text = model["pipeline_model_parallel_layout"]
    if text is None:
        stages = model["pipeline_model_parallel_size"] * (model["virtual_pipeline_model_parallel_size"] or 1)
        assert layers % stages == 0
        return [layers // stages] * stages
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda hit: hit[1] * int(hit[2]), text)
    assert set(text) <= {*LETTERS, "|"}
    assert (text[0], text[-1]) == ("E", "L")
    return [stage.count("t") for stage in text.split("|")]
