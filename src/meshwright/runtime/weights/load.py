"""Load a model's tensors from a checkpoint's folder: all of them, or the slices that a device needs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from meshwright.errors import InputError, Problem, nearest
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.runtime.weights.family_tensor_names import (
    HEAD,
    Checkpoint,
    checkpoint_of,
    prefixed,
    stored_copies,
    stored_places,
)
from meshwright.runtime.weights.safetensors_index import Folder
from meshwright.runtime.weights.stored_parts import Part, Place, StoredTensor

DTYPES = ("F64", "F32", "BF16", "F16")
FEW = 4
"""Largest number of names that are reported one by one."""
OTHER_TOWERS = ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.")
BUFFERS = (
    *(".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"),
    *(".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"),
)
"""Stored tensors that are not weights and follow from the configuration: causal masks, frequencies, decays."""
NEXT_TOKEN = "eh_proj.weight"
"""Marks a multi-token-prediction layer (DeepSeek-V3, GLM-4.5); ignored if the model does not train such layers."""


def load(
    folder: str | Path, model: ModelGraph, slices: Mapping[str, Sequence[slice]] | None = None
) -> dict[str, Tensor]:
    """Return tensors by our names, in the dtypes of the files.

    ``slices`` names the tensors to read, each with contiguous slices of its leading dims (none: the whole); without it
    everything is read. Names are checked against the whole checkpoint, shapes as tensors are read. Raises InputError
    with all tensors that are missing, unexpected or of another shape.
    """
    places = stored_places(model)
    if slices is None:
        slices = dict.fromkeys(places, ())
    unknown = [_unknown(name, places) for name in slices if name not in places]
    if unknown:
        raise InputError(unknown)
    with Folder(Path(folder)) as files:
        names = _found_names(checkpoint_of(model.architecture.family), places, files.files)
        problems = _name_problems(model, set(names.values()), files.files)
        stored: dict[str, StoredTensor] = {}
        for part in (part for name, cut in slices.items() for part in places[name].needed(cut)):
            if names[part.name] in files.files:
                try:
                    stored[part.name] = files.tensor(names[part.name])
                    problems += _problems(names[part.name], part, stored[part.name])
                except InputError as error:
                    problems += error.problems
        if problems:
            raise InputError({(problem.field, problem.rule): problem for problem in problems}.values())
        return {name: places[name].read(lambda part: stored[part.name], cut) for name, cut in slices.items()}


def _unknown(name: str, places: Mapping[str, Place]) -> Problem:
    return Problem(name, "wanted", "the model has no tensor of this name", nearest(name, places))


def _found_names(
    checkpoint: Checkpoint, places: Mapping[str, Place], files: Mapping[str, str]
) -> dict[str, str]:
    """Map each part's name to its stored name, with the prefix that this checkpoint's token table has."""
    table = checkpoint.outer["embed.embed_tokens"]
    prefix = next(
        (p for p in checkpoint.prefixes if f"{p}{table}.weight" in files),
        checkpoint.prefixes[0],
    )
    return {part.name: prefixed(prefix, part.name) for place in places.values() for part in place.parts}


def _name_problems(model: ModelGraph, expected: set[str], files: Iterable[str]) -> list[Problem]:
    found, arch = set(files), model.architecture
    copies = tuple(stored_copies(model))
    further = () if copies else tuple(n.removesuffix(NEXT_TOKEN) for n in found if n.endswith(NEXT_TOKEN))
    unused = (*copies, *checkpoint_of(arch.family).ignored)
    ignored = {name for name in found if name.startswith(further) or name.endswith(unused)}
    extra = {name for name in found - expected - ignored if not _ignored(name, arch)}
    return [
        *_grouped(
            expected - found, None, "missing from the checkpoint", f"{model.name} needs what is missing"
        ),
        *_grouped(extra, "stored", f"no tensor of {model.name}", "give the config.json of this checkpoint"),
    ]


def _grouped(names: set[str], value: str | None, what: str, suggestion: str) -> list[Problem]:
    """Return a problem for each of a few names, or one for many."""
    ordered = sorted(names)
    if len(names) <= FEW:
        return [Problem(name, value, f"is {what}", suggestion) for name in ordered]
    shown = ", ".join([*ordered[:FEW], "..."])
    return [Problem("weights", f"{len(names)} tensors", f"are {what}: {shown}", suggestion)]


def _ignored(name: str, arch: Architecture) -> bool:
    """Return whether a stored tensor belongs to another tower, is a computable buffer, or copies a tied table."""
    tower = arch.encoder is None and name.removeprefix("model.").startswith(OTHER_TOWERS)
    return tower or name.endswith(BUFFERS) or (arch.tied_embeddings and name.endswith(f"{HEAD}.weight"))


def _problems(name: str, part: Part, stored: StoredTensor) -> list[Problem]:
    shape, dtype = tuple(stored.get_shape()), str(stored.get_dtype())
    problems = []
    if shape != part.stored_shape:
        rule = f"has the shape {list(shape)}, must have {list(part.stored_shape)}"
        problems.append(Problem(name, list(shape), rule, "give the config.json of this checkpoint"))
    if dtype not in DTYPES:
        rule = f"is stored as {dtype}, must be one of " + ", ".join(DTYPES)
        problems.append(Problem(name, dtype, rule, "give a checkpoint that is not quantised"))
    return problems
