"""Save a model's tensors as a checkpoint that Hugging Face libraries load.

Files are written under temporary names and renamed when all are complete, the index last: a folder never holds a
partial checkpoint under a checkpoint's name. A folder that already holds a checkpoint is refused. The caller writes
``config.json``.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from meshwright.errors import InputError, Problem, nearest
from meshwright.model.graph import ModelGraph
from meshwright.runtime.fsync import give_usual_rights
from meshwright.runtime.weights.family_tensor_names import (
    checkpoint_of,
    prefixed,
    stored_copies,
    stored_places,
)
from meshwright.runtime.weights.safetensors_index import INDEX, SINGLE
from meshwright.runtime.weights.stored_parts import Place

MAX_FILE_BYTES = 5 * 10**9


def save(
    folder: str | Path,
    model: ModelGraph,
    tensors: Mapping[str, Tensor],
    max_file_bytes: int = MAX_FILE_BYTES,
    prefix: str | None = None,
) -> None:
    """Write tensors (by our names) as safetensors files of at most ``max_file_bytes``, unless one tensor is larger.

    ``prefix`` precedes the stored names, for a text tower that goes back into its whole model. Raises InputError with
    every tensor that is missing, unexpected or of another shape, and every file in the way.
    """
    target, places = Path(folder), stored_places(model)
    prefixes = checkpoint_of(model.architecture.family).prefixes
    prefix = prefixes[0] if prefix is None else prefix
    problems = [*_problems(places, tensors), *_in_the_way(target)]
    if prefix not in prefixes:
        problems.append(Problem("prefix", prefix, "is none of this family's", "one of " + repr(prefixes)))
    if max_file_bytes < 1:
        rule = "a file must have room for something"
        problems.append(Problem("max_file_bytes", max_file_bytes, rule, str(MAX_FILE_BYTES)))
    if problems:
        raise InputError(problems)
    written: list[tuple[Path, dict[str, int]]] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for number, shard in enumerate(_shards(_stored(prefix, model, tensors), max_file_bytes), start=1):
            path = target / f".partial-{number:05d}.safetensors"
            written.append((path, {name: tensor.nbytes for name, tensor in shard.items()}))
            save_file(shard, path, metadata={"format": "pt"})
            give_usual_rights(path)
            _settle(path)
        _publish(target, written)
    except (OSError, SafetensorError) as error:
        rule = f"cannot be written: {' '.join(str(error).split())[:200]}"
        raise InputError(Problem("folder", str(target), rule, "a folder with enough room")) from None
    finally:
        for path, _ in written:
            path.unlink(missing_ok=True)


def _stored(prefix: str, model: ModelGraph, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the stored tensors one by one, assembled from their parts; each of ours is read once, and for copies."""
    places = stored_places(model)
    members: dict[str, list[tuple[str, int]]] = {}
    for our, place in places.items():
        for index, part in enumerate(place.parts):
            members.setdefault(part.name, []).append((our, index))
    held: dict[str, Tensor] = {}
    for name, ours in members.items():
        held = {our: held[our] if our in held else tensors[our].detach() for our, _ in ours}
        first, index = ours[0]
        whole = torch.empty(places[first].parts[index].stored_shape, dtype=held[first].dtype)
        for our, index in ours:
            places[our].parts[index].put(places[our].piece(held[our], index), whole)
        yield prefixed(prefix, name), whole
    for name, our in stored_copies(model).items():
        yield prefixed(prefix, name), tensors[our].detach().clone()


def _shards(stored: Iterator[tuple[str, Tensor]], max_file_bytes: int) -> Iterator[dict[str, Tensor]]:
    """Group tensors in order into files of limited size."""
    shard: dict[str, Tensor] = {}
    for name, tensor in stored:
        if shard and sum(other.nbytes for other in shard.values()) + tensor.nbytes > max_file_bytes:
            yield shard
            shard = {}
        shard[name] = tensor
    yield shard


def _publish(target: Path, written: list[tuple[Path, dict[str, int]]]) -> None:
    """Rename the files to their final names; several files get an index, written last."""
    if len(written) == 1:
        os.replace(written[0][0], target / SINGLE)
        return
    total = sum(nbytes for _, sizes in written for nbytes in sizes.values())
    files: dict[str, str] = {}
    for number, (path, sizes) in enumerate(written, start=1):
        name = f"model-{number:05d}-of-{len(written):05d}.safetensors"
        os.replace(path, target / name)
        files |= dict.fromkeys(sizes, name)
    index = target / f".partial-{INDEX}"
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": files}, indent=2, sort_keys=True)
    index.write_text(text + "\n", encoding="utf-8")
    _settle(index)
    os.replace(index, target / INDEX)


def _settle(path: Path) -> None:
    """Flush a file to disk before it is renamed."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _problems(places: Mapping[str, Place], tensors: Mapping[str, Tensor]) -> list[Problem]:
    missing = [
        Problem(name, None, "is missing", "give every tensor") for name in places if name not in tensors
    ]
    extra = [
        Problem(name, "given", "the model has no tensor of this name", nearest(name, places))
        for name in tensors
        if name not in places
    ]
    return [*missing, *extra, *_shape_problems(places, tensors), *_dtype_problems(places, tensors)]


def _shape_problems(places: Mapping[str, Place], tensors: Mapping[str, Tensor]) -> Iterator[Problem]:
    for name, place in places.items():
        if name in tensors and tuple(tensors[name].shape) != place.shape:
            shape = list(tensors[name].shape)
            yield Problem(
                name, shape, f"has the shape {shape}, must have {list(place.shape)}", "the whole tensor"
            )


def _dtype_problems(places: Mapping[str, Place], tensors: Mapping[str, Tensor]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, place in places.items():
        leader = first.setdefault(place.parts[0].name, name)
        if name in tensors and leader in tensors and tensors[name].dtype != tensors[leader].dtype:
            dtype = tensors[name].dtype
            rule = f"is {dtype}, {leader} is {tensors[leader].dtype}: both are one tensor of the file"
            yield Problem(name, str(dtype), rule, "one dtype for both")


def _in_the_way(target: Path) -> Iterator[Problem]:
    """Yield the problems of a folder that cannot be written into, or holds a checkpoint."""
    if target.exists() and not target.is_dir():
        yield Problem("folder", str(target), "is no folder", "another name")
        return
    for path in sorted([*target.glob("model*.safetensors"), *target.glob(INDEX)]):
        yield Problem("folder", str(path), "there is a checkpoint already", "another folder, or remove it")
