"""Recipes of Megatron-Bridge 0.6.2: functions that return a whole configuration, found by our name of the model.

``megatron-bridge-0.6.2-models.csv`` gives for the start of a recipe's name our model (the recipe that exports of a
model begin with is among the ``models`` of the stack's file); ``…-recipes.csv`` what recipes for pre-training and full
fine-tuning set of parallelism, batch and precision, by Bridge's own names; an empty cell is left at the default of its
type. Read by calling every function of ``megatron/bridge/recipes`` and ``perf_recipes`` of the 0.6.2 wheel with our zoo
in place of the hub; where both packages have a name, its own runner takes the second. A recipe with a communication
overlap of its own turns the overlaps of data parallelism on (``training/comm_overlap.py``), and so they stand there.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

MODELS = "megatron-bridge-0.6.2-models.csv"
RECIPES = "megatron-bridge-0.6.2-recipes.csv"


@dataclass(frozen=True, slots=True)
class BridgeModel:
    """A model that recipes are there for. ``model`` is empty where the zoo does not have it; ``remark`` says where
    its recipes are those of a model that is only like ours."""

    stem: str
    model: str
    remark: str


def bridge_models() -> tuple[BridgeModel, ...]:
    """All rows of the table of models."""
    return tuple(BridgeModel(**row) for row in _rows(MODELS))


def model_of(recipe: str) -> BridgeModel | None:
    """Return the model of a recipe by the longest known start of its name; None where no start is known."""
    found = [row for row in bridge_models() if recipe.startswith(f"{row.stem}_")]
    return max(found, key=lambda row: len(row.stem), default=None)


def recipe_settings(recipe: str) -> Mapping[str, str] | None:
    """Return a recipe's settings by dotted name; None for one that is not in the table."""
    row = next((row for row in _rows(RECIPES) if row["recipe"] == recipe), None)
    return row and {name: value for name, value in row.items() if value and name != "recipe"}


def recipe_names() -> tuple[str, ...]:
    """Every recipe of the table."""
    return tuple(row["recipe"] for row in _rows(RECIPES))


def _rows(table: str) -> list[dict[str, str]]:
    path = files("meshwright.frameworks.megatron_bridge").joinpath(table)
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
