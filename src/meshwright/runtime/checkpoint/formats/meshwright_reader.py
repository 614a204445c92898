"""Read our own checkpoints as whole tensors, each when it is asked for.

A tensor is put together as a rank that holds all of it would do under another plan (``stored_elements.py``): islands of
replicas give their anchor, scaled moments are opened. Memory holds one tensor and one chunk of a file.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path

import torch

from meshwright.errors import InputError
from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.runtime.checkpoint.chunked_file import ChunkedFile, file_problems
from meshwright.runtime.checkpoint.exchange_states import ANCHOR, ENTRY, GRADIENT
from meshwright.runtime.checkpoint.formats.whole_states import State, WholeStates, WholeTensor
from meshwright.runtime.checkpoint.manifest import Manifest, foreign_files, read_manifest, size_problems
from meshwright.runtime.checkpoint.read_shards import Chunk, all_chunks, check_chunks, read_stretches
from meshwright.runtime.checkpoint.shard_files import COPY, SCALE
from meshwright.runtime.checkpoint.stored_elements import ReshardedReading
from meshwright.runtime.checkpoint.stored_index import StoredStretch, stored_stretches
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.state.stored_states import SCALED


def read_meshwright(path: Path) -> WholeStates:
    """Return the states of a checkpoint of a run. Raises InputError for damaged files."""
    manifest = read_manifest(path)
    problems = [*foreign_files(path, manifest), *size_problems(path, manifest.files)]
    if problems:
        raise InputError(problems)
    by_tensor: dict[str, list[StoredStretch]] = defaultdict(list)
    for name in sorted(manifest.files):
        with ChunkedFile(path, name, manifest.files[name]) as file:
            for stored in stored_stretches(file):
                by_tensor[stored.tensor].append(stored)
    read: set[Chunk] = set()
    tensors, left_out = dict[State, WholeTensor](), set[str]()
    for name, of in by_tensor.items():
        for state in dict.fromkeys(stored.state for stored in of):
            if _is_carried(state):
                tensors[state, name] = _whole(path, manifest, state, of, read)
            elif state.partition(".")[0] in (ENTRY, GRADIENT):
                left_out.add(state.partition(".")[0])
    return WholeStates(
        tensors=tensors,
        step=manifest.step,
        precision=manifest.precision,
        plan=manifest.plan,
        model=manifest.model,
        facts=manifest.facts,
        left_out=tuple(sorted(left_out)),
        finish=partial(_check_rest, path, manifest, read),
    )


def _is_carried(state: str) -> bool:
    """Return whether a state belongs to the model or its optimizer, once."""
    return not (
        state == ANCHOR or state.startswith((COPY, f"{ENTRY}.", f"{GRADIENT}.")) or state.endswith(SCALE)
    )


def _whole(
    path: Path, manifest: Manifest, state: str, stored: Sequence[StoredStretch], read: set[Chunk]
) -> WholeTensor:
    """Return a state of a tensor, whose stretches are ``stored``; reading it adds to the chunks that were ``read``."""
    first = next(of for of in stored if of.state == state)
    shape, name = first.region.whole_shape, first.tensor
    dtype = torch.float32 if first.dtype in SCALED else first.dtype

    def load() -> torch.Tensor:
        whole = torch.zeros(shape, dtype=dtype)
        tensor = Tensor(name, shape, shape, (), False, False, trained=False)
        reading = ReshardedReading(path, stored, outer=False)
        reading.add(Stretch(state, tensor, 0, 0, (whole.view(prod(shape)),)))
        if reading.found.problems:
            raise InputError(reading.found.problems)
        read.update(read_stretches(path, manifest, reading.found))
        return whole

    return WholeTensor(shape, dtype, load)


def _check_rest(path: Path, manifest: Manifest, read: set[Chunk]) -> None:
    """Check the chunks that no tensor needed, and whole files of format 1. Raises InputError."""
    check_chunks(path, manifest, sorted(all_chunks(manifest) - read))
    undigested = {name: of for name, of in manifest.files.items() if not of.chunks}
    problems = list(file_problems(path, undigested))
    if problems:
        raise InputError(problems)
