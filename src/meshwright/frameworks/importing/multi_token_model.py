"""The model of a file that trains layers for further tokens, where the model's own file leaves them out.

Files of released models say how many such layers a checkpoint has, and ``model/operators/multi_token_prediction.py``
plans them only where the file asks for it. A training script that asks for them makes a model of its own: the
released one's file with that question answered. Where the model's kind has no such layers, the plan is without them
and that is said.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import Problem
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, NEXT_WEIGHT, ImportedFile
from meshwright.model.architecture import Architecture
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.operators.multi_token_prediction import ASKED, COUNT, WEIGHT

Config = Mapping[str, Any]


def needs_multi_token_layers(foreign: ImportedFile, arch: Architecture) -> bool:
    """Return true if the file trains multi-token prediction layers and the model has none."""
    return bool(foreign.value(NEXT_LAYERS)) and not arch.next_token_layers


def config_with_multi_token_layers(
    foreign: ImportedFile, config: Config, arch: Architecture
) -> Config | None:
    """Return the model's configuration with the layers of the file; None where its kind cannot have them."""
    count = foreign.value(NEXT_LAYERS)
    told = f"{arch.source}; with layers for further tokens as in a file for {foreign.release}"
    asked = {COUNT: count, ASKED: True, WEIGHT: foreign.value(NEXT_WEIGHT)}
    more = {**config, "_source": told, **{key: value for key, value in asked.items() if value is not None}}
    made = read_architecture(more, arch.name, told)
    return more if made.next_token_layers == count else None


def multi_token_problem(foreign: ImportedFile, arch: Architecture, *, made: bool) -> Problem:
    """Return the message on the plan's model, or on its missing layers."""
    count, words = foreign.value(NEXT_LAYERS), foreign.words(NEXT_LAYERS)
    if made:
        rule = (
            f"{arch.name}'s file leaves such layers out: the plan's model is a copy of it that trains {count}"
        )
        hint = f"--model with a file that has {ASKED}: true"
    else:
        rule = (
            f"models of {arch.name}'s kind have no layers for further tokens here: the plan is without the {count}, "
            "and the run takes longer"
        )
        hint = f"--model with a file of deepseek_v3 or glm4_moe and {ASKED}: true"
    return Problem(words.split(" ")[0], count, rule, hint, "warning")


def next_token_differences(foreign: ImportedFile, arch: Architecture) -> Iterator[Problem]:
    """Where the model asks for such layers and the file for others: it would train another model."""
    if not arch.next_token_layers or NEXT_LAYERS not in foreign.facts:
        return
    ours = {NEXT_LAYERS: arch.next_token_layers, NEXT_WEIGHT: arch.next_token_weight}
    for path, value in ours.items():
        fact = foreign.facts.get(path)
        if fact is not None and fact.value != value:
            what = "layers for further tokens" if path == NEXT_LAYERS else "as the weight of their losses"
            hint = f"{value}, or another --model"
            yield Problem(fact.words.split(" ")[0], fact.value, f"{arch.name} has {value} {what}", hint)
