"""Weights of a run as a Hugging Face checkpoint: whole tensors, gathered to rank 0 layer by layer.

Written in the dtype that the run computes in. Rank 0 needs host memory for all weights; accelerators hold one stretch
of a parameter beside their shards. Moments and step are left out: a run goes on from ``save_checkpoint``'s folders.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.model.graph import ModelGraph
from meshwright.runtime.checkpoint.folder import write_errors
from meshwright.runtime.checkpoint.shards import BUFFER, PARAMETER, Stretch, stretches
from meshwright.runtime.checkpoint.together import together
from meshwright.runtime.durable import settle
from meshwright.runtime.pieces import Piece, whole_tensors
from meshwright.runtime.rank import Rank
from meshwright.runtime.unit_layout import Tensor
from meshwright.runtime.weights.families import stored_places
from meshwright.runtime.weights.saving import save

CONFIG = "config.json"


class Coming(NamedTuple):
    """A stretch that a rank will send."""

    tensor: Tensor
    start: int
    elements: int
    dtype: torch.dtype


ByLayer = dict[str, tuple[Stretch, ...]]
Announced = dict[str, tuple[Coming, ...]]


def export_weights(
    folder: Path, rank: Rank, model: ModelGraph, config: Mapping[str, object] | None = None
) -> None:
    """Write ``model*.safetensors`` into a folder, and ``config.json`` where ``config`` is known. Every rank calls it.

    Raises InputError on all ranks where the folder cannot be written or holds a checkpoint, where weights are NaN, and
    for families whose names are not known.
    """
    mine = _by_layer(_own(rank))
    announced = together(rank, "list of weights", lambda: _announced(mine, model, rank))
    first = rank.place.rank == 0
    whole: dict[str, torch.Tensor] = {}
    with rank.communicator.naming("gathering of weights", tuple(range(rank.place.ranks))):
        for layer in dict.fromkeys(layer for of_rank in announced for layer in of_rank):
            if first:
                whole |= whole_tensors(_arriving(layer, announced, mine, rank))
            else:
                for stretch in mine.get(layer, ()):
                    dist.send(_weights(stretch, rank), dst=0)
    together(rank, "writing of weights", lambda: _write(folder, model, whole, config) if first else None)


def _own(rank: Rank) -> list[Stretch]:
    """The parameters and buffers that this rank is the first owner of."""
    return [s for s in stretches(rank) if s.state in (PARAMETER, BUFFER) and s.owner == rank.place.rank]


def _by_layer(own: Iterable[Stretch]) -> ByLayer:
    """Stretches of each layer, or of embedding and head."""
    ordered = sorted(own, key=_layer)
    return {layer: tuple(of_layer) for layer, of_layer in groupby(ordered, key=_layer)}


def _layer(stretch: Stretch) -> str:
    names = stretch.tensor.name.split(".")
    return ".".join(names[:2]) if names[0] == "layers" else names[0]


def _announced(mine: ByLayer, model: ModelGraph, rank: Rank) -> Announced:
    """What this rank will send. Raises InputError where it cannot be written anyway."""
    stored_places(model)
    bad = {s.tensor.name for of_layer in mine.values() for s in of_layer if bool(s.values.isnan().any())}
    if bad:
        rule = "holds NaN: the run has diverged"
        raise InputError(Problem(name, "nan", rule, "export an earlier checkpoint") for name in sorted(bad))
    return {
        layer: tuple(Coming(s.tensor, s.start, len(s.values), _dtype(s.state, rank)) for s in of_layer)
        for layer, of_layer in mine.items()
    }


def _arriving(layer: str, announced: list[Announced], mine: ByLayer, rank: Rank) -> Iterator[Piece]:
    """A layer's pieces from all ranks, in the order in which each of them sends."""
    for stretch in mine.get(layer, ()):
        yield _piece(stretch.tensor, stretch.start, _weights(stretch, rank))
    for sender, of_rank in enumerate(announced[1:], start=1):
        for tensor, start, elements, dtype in of_rank.get(layer, ()):
            values = torch.empty(elements, dtype=dtype, device=rank.communicator.device)
            dist.recv(values, src=sender)
            yield _piece(tensor, start, values)


def _piece(t: Tensor, start: int, values: torch.Tensor) -> Piece:
    return Piece(t.name, t.whole_shape, t.shape, t.cuts, start, values.cpu())


def _weights(stretch: Stretch, rank: Rank) -> torch.Tensor:
    return stretch.values.detach().to(_dtype(stretch.state, rank))


def _dtype(state: str, rank: Rank) -> torch.dtype:
    """Weights are written as they are computed with, buffers as they are."""
    return rank.plan.precision.compute if state == PARAMETER else rank.plan.precision.master


def _write(
    folder: Path, model: ModelGraph, whole: Mapping[str, torch.Tensor], config: Mapping[str, object] | None
) -> None:
    save(folder, model, whole)
    if config is not None:
        with write_errors(folder / CONFIG):
            (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            settle(folder / CONFIG)
