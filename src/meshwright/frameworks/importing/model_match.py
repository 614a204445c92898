"""The model of a file that describes one by its sizes: is it the one it is meant to be, and which of the zoo is it."""

from collections.abc import Iterator, Mapping

from meshwright.errors import Problem
from meshwright.frameworks.exporting.plan_facts import model_sizes, next_tokens_of
from meshwright.frameworks.importing.imported_file import Fact, ImportedFile
from meshwright.frameworks.importing.multi_token_model import next_token_differences
from meshwright.model.architecture import Architecture
from meshwright.model.load import load_model
from meshwright.model.zoo_names import same_sizes, zoo_names

PREFIX = "model."
ENOUGH = ("layers", "hidden", "heads")
"""Sizes that must be known before a model is looked for."""
PADDING = 1024
DENSE_WIDTH = "intermediate"


def size_differences(foreign: ImportedFile, arch: Architecture) -> Iterator[Problem]:
    """Sizes in the file that are not the model's: the file would train another model."""
    sizes = _compared_sizes(foreign, arch)
    for path, fact in foreign.facts.items():
        name = path.removeprefix(PREFIX)
        if not path.startswith(PREFIX) or _same(name, fact.value, sizes.get(name, fact.value)):
            continue
        rule = f"{arch.name} has {name} = {sizes[name]}"
        yield Problem(fact.words.split(" ")[0], fact.value, rule, f"{sizes[name]}, or another --model")
    if "model.experts" in foreign.facts and arch.moe is None:
        words = foreign.facts["model.experts"].words
        yield Problem(words.split(" ")[0], words, f"{arch.name} has no experts", "another --model")
    yield from next_token_differences(foreign, arch)


def sizes_of_model(arch: Architecture) -> dict[str, Fact]:
    """Return the sizes of a model as facts of a file that leaves them to ``--model``."""
    sizes = {f"{PREFIX}{name}": size for name, size in model_sizes(arch).items()} | next_tokens_of(arch)
    return {path: Fact(size, f"--model {arch.name}") for path, size in sizes.items()}


def matching_zoo_models(foreign: ImportedFile) -> list[str]:
    """Return the decoders of the zoo that have all sizes of the file; none where it has too few sizes.

    Of models with the same sizes it is the one that stands for all of them. A file has no sizes of an encoder.
    """
    said = {p.removeprefix(PREFIX): f.value for p, f in foreign.facts.items() if p.startswith(PREFIX)}
    if not set(ENOUGH) <= set(said):
        return []
    found = [name for name in zoo_names() if _has(foreign, load_model(name).architecture, said)]
    return [name for name in found if same_sizes().get(name) not in found]


def _has(foreign: ImportedFile, arch: Architecture, said: Mapping[str, int]) -> bool:
    sizes = _compared_sizes(foreign, arch)
    if arch.encoder is not None or (arch.moe is not None) != ("experts" in said):
        return False
    return all(
        _same(name, value, sizes[name]) if name in sizes else name == DENSE_WIDTH
        for name, value in said.items()
    )


def _compared_sizes(foreign: ImportedFile, arch: Architecture) -> dict[str, int]:
    """Return the sizes that a file must have; the width of dense layers is none of a model without such layers.

    A file that says one width says that of the experts.
    """
    sizes = model_sizes(arch)
    if not arch.intermediate and f"{PREFIX}expert_intermediate" in foreign.facts:
        del sizes[DENSE_WIDTH]
    return sizes


def _same(name: str, said: int, size: int) -> bool:
    """Return true if a size is the model's; a vocabulary may be padded, or be a tokenizer's own count."""
    if name == "vocab":
        return abs(said - size) <= max(PADDING, size // 50)
    return said == size
