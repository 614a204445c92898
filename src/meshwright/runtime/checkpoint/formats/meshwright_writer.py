"""Write a checkpoint of ours from whole tensors: one rank's file, as a run on one device would write it.

Any plan can go on from it: its signature is that of no plan, so its elements are looked up wherever they lie. The file
is written tensor by tensor.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path

import torch

from meshwright.errors import InputError, Problem
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.runtime.checkpoint.formats.whole_states import State, WholeStates, WholeTensor
from meshwright.runtime.checkpoint.manifest import Manifest, StoredFile
from meshwright.runtime.checkpoint.run_folder import write_errors
from meshwright.runtime.checkpoint.save import write_manifest
from meshwright.runtime.checkpoint.shard_files import PARAMETER, rank_file
from meshwright.runtime.checkpoint.shard_output import ShardWriter, bytes_of, in_file_order
from meshwright.runtime.checkpoint.stored_index import DTYPES
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND

SIGNATURE = "converted"
PRECISION_OF_BYTES = {8: "fp64", 4: "fp32"}
"""The precision of runs whose parameters have so many bytes."""


def write_meshwright(folder: Path, states: WholeStates, precision: str | None) -> None:
    """Write a folder that holds nothing yet, for runs of a ``precision``, by default that of the source.

    Raises InputError if it cannot be written, or a source is damaged.
    """
    tensors = with_moments(states.tensors)
    foreign = {name: of.dtype for (_, name), of in tensors.items() if of.dtype not in DTYPES}
    if foreign:
        rule, suggestion = "has a dtype that a checkpoint cannot hold", "fp64, fp32, bf16, fp16 or int64"
        raise InputError(Problem(name, str(dtype), rule, suggestion) for name, dtype in foreign.items())
    with write_errors(folder):
        stored = _write_tensors(folder / rank_file(0), tensors)
        manifest = Manifest(
            signature=SIGNATURE,
            ranks=1,
            precision=precision or states.precision or usual_precision(tensors),
            step=states.step,
            plan=states.plan,
            model=states.model,
            facts=states.facts,
            files={rank_file(0): stored},
        )
        write_manifest(folder, manifest)


def usual_precision(tensors: Mapping[State, WholeTensor]) -> str:
    """Return the precision of runs whose parameters have the dtype of these."""
    widths = {of.dtype.itemsize for (state, _), of in tensors.items() if state == PARAMETER}
    return PRECISION_OF_BYTES.get(max(widths, default=2), "bf16")


def with_moments(tensors: Mapping[State, WholeTensor]) -> dict[State, WholeTensor]:
    """Add both moments of every parameter as zeros to states that have none, as before a first step."""
    found = dict(tensors)
    if any(state in (FIRST, SECOND) for state, _ in tensors):
        return found
    for (state, name), of in tensors.items():
        if state == PARAMETER:
            zeros = WholeTensor(of.shape, of.dtype, lambda of=of: torch.zeros(of.shape, dtype=of.dtype))  # type: ignore[misc]
            found |= {(FIRST, name): zeros, (SECOND, name): zeros}
    return found


def _write_tensors(path: Path, tensors: Mapping[State, WholeTensor]) -> StoredFile:
    """Write a file and return its size and digests. Raises OSError."""
    ordered = in_file_order([_stretch(key, of) for key, of in tensors.items()])
    with ShardWriter(path, ordered) as file:
        for stretch in ordered:
            file.write(bytes_of(tensors[stretch.state, stretch.tensor.name].read().view(-1)))
        return file.finish()


def _stretch(key: State, of: WholeTensor) -> Stretch:
    """Return a whole tensor as a stretch, whose memory has its length and no values."""
    state, name = key
    tensor = Tensor(name, of.shape, of.shape, (), False, False, trained=False)
    return Stretch(state, tensor, 0, 0, (torch.zeros((), dtype=of.dtype).expand(prod(of.shape)),))
