"""Put the parameters of a checkpoint together from its shard files, without the plan that wrote them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from meshwright.errors import InputError
from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.checkpoint.exchange_states import ANCHOR
from meshwright.runtime.checkpoint.manifest import Manifest, damage, file_problems
from meshwright.runtime.checkpoint.shard_files import METADATA, PARAMETER
from meshwright.runtime.state.shard_pieces import Piece, whole_tensors


def whole_parameters(path: Path, manifest: Manifest) -> dict[str, torch.Tensor]:
    """Return every stored parameter by name, in its stored dtype. Raises InputError for damaged files.

    Where islands of replicas differ, an anchor stands for the model (``exchange_states.py``).
    """
    problems = list(file_problems(path, manifest.files))
    if problems:
        raise InputError(problems)
    files = sorted(manifest.files)
    anchors = list(_pieces(path, files, ANCHOR))
    anchored = {piece.name for piece in anchors}
    others = (piece for piece in _pieces(path, files, PARAMETER) if piece.name not in anchored)
    return whole_tensors((*anchors, *others))


def _pieces(path: Path, files: Iterable[str], wanted: str) -> Iterator[Piece]:
    """Yield the pieces of a state, each from the first file that has it."""
    seen: set[str] = set()
    for file in files:
        try:
            with safe_open(path / file, framework="pt") as handle:
                shapes = json.loads(handle.metadata()[METADATA])
                for key in handle.keys():  # noqa: SIM118  (a handle is no mapping)
                    state, name, cut, stretch = key.split("/")
                    if state == wanted and key not in seen:
                        seen.add(key)
                        shape, place = shapes[f"{name}/{cut}"], int(stretch.split("-")[0])
                        whole, local = tuple(shape["whole_shape"]), tuple(shape["shape"])
                        yield Piece(name, whole, local, _cuts(cut), place, handle.get_tensor(key))
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise InputError(damage(path, file, f"cannot be read: {error}")) from None


def _cuts(text: str) -> tuple[Cut, ...]:
    """Parse ``whole``, or the dims and ranges of a part: ``0:4-8,1:0-32``, ``0:9+2+5``."""
    found = []
    for part in () if text == "whole" else text.split(","):
        dim, places = part.split(":")
        if "-" in places:
            start, stop = map(int, places.split("-"))
            found.append(Cut(int(dim), start, stop))
        else:
            rows = tuple(map(int, places.split("+")))
            found.append(Cut(int(dim), 0, len(rows), rows))
    return tuple(found)
