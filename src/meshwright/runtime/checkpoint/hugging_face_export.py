"""Export a run's weights as a Hugging Face checkpoint: whole tensors, gathered to rank 0 layer by layer.

Weights are written in the run's compute dtype. Where islands of replicas differ, those of their anchor are written.
Rank 0 needs host memory for all weights; an accelerator holds one stretch of a parameter in addition to its shards.
Moments and step are not written: to resume a run, use the folders of ``save_checkpoint``.
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
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.program.synchronisation.islands import islands
from meshwright.runtime.checkpoint.all_or_none import all_or_none
from meshwright.runtime.checkpoint.run_folder import write_errors
from meshwright.runtime.checkpoint.shard_files import BUFFER, PARAMETER, stretches
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.fsync import fsync_path
from meshwright.runtime.state.anchor_parameters import anchored_model
from meshwright.runtime.state.shard_pieces import Piece, whole_tensors
from meshwright.runtime.weights.family_tensor_names import stored_places
from meshwright.runtime.weights.peft_files import save_adapters
from meshwright.runtime.weights.save import save

CONFIG = "config.json"


class Coming(NamedTuple):
    """A stretch of a tensor that a rank announces before it sends it."""

    tensor: Tensor
    start: int
    elements: int
    dtype: torch.dtype


ByLayer = dict[str, tuple[Stretch, ...]]
Announced = dict[str, tuple[Coming, ...]]


def export_weights(
    folder: Path,
    rank: Rank,
    model: ModelGraph,
    config: Mapping[str, object] | None = None,
    base: Mapping[str, object] | None = None,
) -> None:
    """Write ``model*.safetensors`` into a folder, and ``config.json`` if ``config`` is given. Every rank calls it.

    With a frozen ``base`` only its adapters are written, in the format of ``peft``.

    Raises InputError on all ranks if the folder cannot be written or holds a checkpoint, if weights are NaN, or if the
    tensor names of the model's family are not known.
    """
    states = rank.interpreter.states
    states.synchroniser.settle()
    with anchored_model(states):
        whole = _gathered(rank, model)
    first = rank.place.rank == 0
    all_or_none(
        rank, "writing of weights", lambda: _write(folder, model, whole, config, base) if first else None
    )


def _gathered(rank: Rank, model: ModelGraph) -> dict[str, torch.Tensor]:
    """Return all weights on rank 0, and none on the others."""
    mine = _by_layer(_own(rank))
    announced = all_or_none(rank, "list of weights", lambda: _announced(mine, model, rank))
    whole: dict[str, torch.Tensor] = {}
    with rank.communicator.naming("gathering of weights", tuple(range(rank.place.ranks))):
        for layer in dict.fromkeys(layer for of_rank in announced for layer in of_rank):
            if rank.place.rank == 0:
                whole |= whole_tensors(_arriving(layer, announced, mine, rank))
            else:
                for stretch in mine.get(layer, ()):
                    dist.send(_weights(stretch, rank), dst=0)
    return whole


def _own(rank: Rank) -> list[Stretch]:
    """Return the parameters and buffers that this rank owns first, and therefore writes; those of the first island."""
    program, own = rank.job.program, rank.place.rank
    if program.loose and own not in islands(program.parts[0].grid, program.loose)[0]:
        return []
    return [s for s in stretches(rank) if s.state in (PARAMETER, BUFFER) and s.owner == own]


def _by_layer(own: Iterable[Stretch]) -> ByLayer:
    """Group stretches by layer; embedding and head are groups of their own."""
    ordered = sorted(own, key=_layer)
    return {layer: tuple(of_layer) for layer, of_layer in groupby(ordered, key=_layer)}


def _layer(stretch: Stretch) -> str:
    names = stretch.tensor.name.split(".")
    return ".".join(names[:2]) if names[0] == "layers" else names[0]


def _announced(mine: ByLayer, model: ModelGraph, rank: Rank) -> Announced:
    """Return the stretches that this rank will send. Raises InputError if they could not be written."""
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
    """Yield a layer's pieces from all ranks, in each rank's order of sending."""
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
    """Return the dtype to write: the compute dtype for parameters, that of statistics for buffers."""
    return rank.plan.precision.compute if state == PARAMETER else rank.plan.precision.statistic


def _write(
    folder: Path,
    model: ModelGraph,
    whole: Mapping[str, torch.Tensor],
    config: Mapping[str, object] | None,
    base: Mapping[str, object] | None,
) -> None:
    if base is not None:
        named = base["init"] or base["model"]
        save_adapters(folder, model, whole, None if named is None else str(named))
        return
    save(folder, model, whole)
    if config is not None:
        with write_errors(folder / CONFIG):
            (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            fsync_path(folder / CONFIG)
