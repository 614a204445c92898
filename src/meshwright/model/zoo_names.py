"""Names of the models that come with Meshwright, and their other spellings.

``zoo/repositories.csv`` lists the repositories of the Hugging Face hub whose ``config.json`` has the architecture of a
zoo model. A model is known by its zoo name, by such a repository, and by the repository without its organisation.
``zoo/same_sizes.csv`` lists models with the layers of another one, which differ in positions or rotation.
Letter case does not matter, nor do hyphens, underscores and spaces.
"""

import csv
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_ZOO = files("meshwright.model").joinpath("zoo")


@cache
def zoo_names() -> tuple[str, ...]:
    """Return the names of the models that come with Meshwright, sorted."""
    names = (entry.name for entry in _ZOO.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def zoo_name(name: str) -> str | None:
    """Return the zoo's name of a model in any of its spellings; None for a name of no zoo model."""
    return _spellings().get(letters(name))


def letters(name: str) -> str:
    """Return a name in lower case without separators: letters, digits, dots, and a slash behind an organisation."""
    return re.sub(r"[^a-z0-9./]", "", name.lower())


@cache
def zoo_repositories() -> tuple[tuple[str, str], ...]:
    """Return pairs of a zoo name and a hub repository of the same architecture."""
    lines = _ZOO.joinpath("repositories.csv").read_text(encoding="utf-8").splitlines()
    return tuple((row["model"], row["repository"]) for row in csv.DictReader(lines))


@cache
def same_sizes() -> Mapping[str, str]:
    """Return models whose sizes are those of another one, which stands for them where only sizes are known.

    Vocabularies may differ by what frameworks pad them with.
    """
    lines = _ZOO.joinpath("same_sizes.csv").read_text(encoding="utf-8").splitlines()
    return {row["model"]: row["sizes_of"] for row in csv.DictReader(lines)}


@cache
def _spellings() -> dict[str, str]:
    found = {letters(repository): model for model, repository in zoo_repositories()}
    found |= {letters(repository.partition("/")[2]): model for model, repository in zoo_repositories()}
    return found | {letters(name): name for name in zoo_names()}
