"""Read a Megatron checkpoint, torch_dist, as states of ours.

Weights come from the optimizer's master copy where there is one. Moments are read in the forms that have a tensor for
each of the model's: ``fully_reshardable``, ``fully_sharded_model_space`` without flattened ranges, and those of
optimizers that are not distributed. Buckets of a distributed optimizer (``dp_reshardable``) are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from meshwright.errors import InputError, Problem
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import named_buffers
from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder
from meshwright.runtime.checkpoint.formats.megatron_layout import (
    EXPERT_NORM,
    EXPERT_NORM_LOCAL,
    leading_dims,
    megatron_places,
)
from meshwright.runtime.checkpoint.formats.megatron_state import read_common
from meshwright.runtime.checkpoint.formats.whole_states import State, WholeStates, WholeTensor
from meshwright.runtime.checkpoint.run_folder import in_short
from meshwright.runtime.checkpoint.shard_files import BUFFER, PARAMETER
from meshwright.runtime.weights.stored_parts import Part, Place
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND

PREFIXES = {
    PARAMETER: ("optimizer.state.param.", "optimizer.state.fp32_param.", ""),
    FIRST: ("optimizer.state.exp_avg.",),
    SECOND: ("optimizer.state.exp_avg_sq.",),
}
"""The prefixes of the keys of each state, the best one first."""
BUCKETS = "optimizer.distributed."
FP8_STATE = "._extra_state/"


def read_megatron(folder: DcpFolder, model: ModelGraph) -> WholeStates:
    """Return the states of a checkpoint. Raises InputError for what is missing or has another shape."""
    if any(BUCKETS in key for key in folder.tensors):
        rule = "has the optimizer's states in buckets of ranks (dp_reshardable)"
        suggestion = "save with --dist-ckpt-optim-fully-reshardable"
        raise InputError(Problem("source", in_short(folder.path), rule, suggestion))
    arch, places, buffers = model.architecture, megatron_places(model), named_buffers(model)
    tensors, used = dict[State, WholeTensor](), set[str]()
    for state, prefixes in PREFIXES.items():
        for name, place in places.items():
            found = _source(folder, arch, place, ("",) if name in buffers else prefixes)
            if found is not None and (state == PARAMETER or name not in buffers):
                used.update(found.keys.values())
                tensors[BUFFER if name in buffers else state, name] = WholeTensor(
                    place.shape, folder.tensors[next(iter(found.keys.values()))].dtype, found.read
                )
    missing = [name for name in places if not {(PARAMETER, name), (BUFFER, name)} & tensors.keys()]
    if missing:
        rule = f"is not in {in_short(folder.path)} with the shape that the model gives it"
        raise InputError(Problem("model", name, rule, "--model of the source") for name in missing[:4])
    steps = read_common(folder).get("iteration", 0)
    left_out = [key for key in folder.tensors if key not in used and not _is_copy(key, used)]
    return WholeStates(tensors=tensors, step=int(steps), left_out=tuple(sorted(left_out)))


def _is_copy(key: str, used: set[str]) -> bool:
    """Return whether a key holds weights that were read from another: of the master copy, or of another norm."""
    masters = {f"{prefix}{key}" for prefix in PREFIXES[PARAMETER]}
    return bool(masters & used) or EXPERT_NORM in key or EXPERT_NORM_LOCAL in key


@dataclass(frozen=True, slots=True)
class _Source:
    """The keys that hold the parts of a tensor of ours."""

    folder: DcpFolder
    arch: Architecture
    place: Place
    keys: Mapping[str, str]

    def read(self) -> Tensor:
        """Return the tensor."""
        return self.place.read(
            lambda part: _Stacked(self.folder, self.keys[part.name], leading_dims(self.arch, part))
        )


def _source(folder: DcpFolder, arch: Architecture, place: Place, prefixes: tuple[str, ...]) -> _Source | None:
    """Return where a tensor of ours is, under the first prefix that has it in the right shape; None if nowhere."""
    for prefix in prefixes:
        keys = {part.name: _key(folder, arch, f"{prefix}{part.name}", part) for part in place.parts}
        held = {name: key for name, key in keys.items() if key is not None}
        if len(held) == len(keys):
            return _Source(folder, arch, place, held)
    return None


def _key(folder: DcpFolder, arch: Architecture, key: str, part: Part) -> str | None:
    """Return the key of a part, or that of the same norm without Transformer Engine; None for another shape.

    Tables may have more rows than ours: how far Megatron pads them depends on its tp.
    """
    inner = replace(part, stack=None).stored_shape
    shape = (*leading_dims(arch, part), *inner)
    for name in (key, key.replace(EXPERT_NORM, EXPERT_NORM_LOCAL)):
        of = folder.tensors.get(name)
        if of is None:
            continue
        padded = part.rows is not None and part.runs == 1 and part.stack is None and part.first == 0
        if of.shape == shape or (padded and of.shape[1:] == shape[1:] and of.shape[0] >= part.shape[0]):
            return name
    return None


@dataclass(frozen=True, slots=True)
class _Stacked:
    """A tensor whose leading dims count as one, as the parts of a place do."""

    folder: DcpFolder
    key: str
    lead: tuple[int, ...]

    def __getitem__(self, cut: tuple[slice, ...]) -> Tensor:
        """Return the elements in these slices; of the leading dims one is chosen."""
        if not self.lead:
            return self.folder.part(self.key, cut)
        at = tuple(slice(int(i), int(i) + 1) for i in np.unravel_index(cut[0].start, self.lead))
        found = self.folder.part(self.key, (*at, *cut[1:]))
        return found.view(1, *found.shape[len(self.lead) :])

    def get_shape(self) -> list[int]:
        """Return the shape with the leading dims as they are."""
        return list(self.folder.tensors[self.key].shape)

    def get_dtype(self) -> str:
        """Return the name of the dtype."""
        return str(self.folder.tensors[self.key].dtype)
