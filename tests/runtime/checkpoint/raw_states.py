"""Put the stored states of a checkpoint together as they are: those of each island, anchors and outer moments too."""

from collections import defaultdict
from collections.abc import Collection
from math import prod
from pathlib import Path

import torch

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.chunked_file import ChunkedFile, file_problems
from meshwright.runtime.checkpoint.copy_elements import Copy, read_copies
from meshwright.runtime.checkpoint.manifest import Manifest, damage
from meshwright.runtime.checkpoint.shared_elements import Region, overlap, runs_of
from meshwright.runtime.checkpoint.stored_index import StoredStretch, stored_stretches

States = dict[tuple[str, str], torch.Tensor]
"""Whole tensors by state and name."""


def whole_states(path: Path, manifest: Manifest, wanted: Collection[str]) -> States:
    """Return all tensors of the wanted states. Raises InputError for damaged files and missing elements."""
    problems = list(file_problems(path, manifest.files))
    if problems:
        raise InputError(problems)
    wholes: States = {}
    there: dict[tuple[str, str], int] = defaultdict(int)
    seen: set[str] = set()
    for name in sorted(manifest.files):
        with ChunkedFile(path, name, manifest.files[name]) as file:
            for stored in stored_stretches(file):
                if stored.state in wanted and stored.name not in seen:
                    seen.add(stored.name)
                    there[stored.state, stored.tensor] += _add(file, stored, wholes)
    for (state, tensor), elements in there.items():
        needed = wholes[state, tensor].numel()
        if elements < needed:
            rule = f"holds {elements} of the {needed} elements of {state}/{tensor}"
            problems.append(damage(path, "", rule))
    if problems:
        raise InputError(problems)
    return wholes


def _add(file: ChunkedFile, stored: StoredStretch, wholes: States) -> int:
    """Copy a stretch into its whole tensor and return its elements, padding not counted."""
    shape = stored.region.whole_shape
    whole = wholes.setdefault((stored.state, stored.tensor), torch.zeros(shape, dtype=stored.dtype))
    shared = overlap(runs_of(Region(shape, shape, (), 0, prod(shape))), runs_of(stored.region))
    read_copies(file, stored, [Copy(whole.view(-1), shared)])
    return shared.elements
