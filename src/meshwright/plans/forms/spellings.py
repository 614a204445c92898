"""Translate other projects' names of precisions, shardings, recomputation and stacks into the plan's own.

Plan files, options and tables of runs all read them.
What is written has our words (``none``, not ``zero0``). A word that neither we nor the table know stays as it is, for
the reader to refuse.
"""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BeforeValidator

from meshwright.errors import InputError, Problem
from meshwright.workload.fp8_recipe import OTHER_PRECISIONS

SHARDINGS: Mapping[str, str] = {"zero0": "none", "fsdp": "zero3", "hsdp": "zero3"}
"""DeepSpeed counts the stages of ZeRO from 0; PyTorch's FSDP cuts what stage 3 does."""
RECOMPUTES: Mapping[str, str] = {
    "op": "selective",
    "selective (per-op sac)": "selective",
    "layer": "full",
}
"""torchtitan's activation checkpointing of operators, and of whole layers."""
RELEASE = re.compile(r"(?P<name>[a-z][a-z0-9_-]*?)(?:\s*==\s*v?|\s+v?|[-_]v)(?P<release>[0-9][0-9a-z.+]*)")


def our_word(value: Any, words: Mapping[str, str]) -> Any:
    """Return the word of ours for one of others, ignoring case; anything else as it is."""
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


def translated(words: Mapping[str, str]) -> BeforeValidator:
    """Return a validator that puts our words in place of others'."""
    return BeforeValidator(lambda value: our_word(value, words))


def stack_in_our_words(value: Any) -> Any:
    """Return ``name@release`` for ``Name release``, ``name==release`` and ``name v1.2``; anything else as it is."""
    if not isinstance(value, str):
        return value
    named = RELEASE.fullmatch(value.strip().lower())
    return f"{named['name'].replace('_', '-')}@{named['release']}" if named else value


def precision_in_our_words(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a workload whose precision says its recipe too (``fp8-cs``) with both keys.

    Raises InputError where the keys contradict each other.
    """
    word = workload.get("precision")
    if not isinstance(word, str) or word.strip().lower() not in OTHER_PRECISIONS:
        return workload
    precision, recipe = OTHER_PRECISIONS[word.strip().lower()]
    given = workload.get("fp8_recipe")
    if given not in (None, recipe):
        rule = f"precision {word} means the recipe {recipe}"
        raise InputError(
            Problem("workload.fp8_recipe", given, rule, f"precision: {precision}, or leave it out")
        )
    return {**workload, "precision": precision, "fp8_recipe": recipe}
