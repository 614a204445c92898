"""The entries of a Megatron checkpoint, torch_dist of megatron-core 0.19, for states of ours.

Moments are in the form ``fully_reshardable`` of its distributed optimizer: a tensor for each of the model's, under
``optimizer.state.exp_avg.…``, ``exp_avg_sq`` and ``param``, the master copy. What is no tensor is one value,
``common_state``: arguments, iteration, groups of the optimizer, and the form itself, which Megatron reads before it
asks for tensors. States of fp8 that Transformer Engine looks for are empty.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from meshwright.errors import Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.runtime.checkpoint.formats.dcp_writer import ChunkedTensor, Keys, TensorChunk, write_dcp
from meshwright.runtime.checkpoint.formats.known_formats import BACKEND, CONFIG, NEWEST, iteration_name
from meshwright.runtime.checkpoint.formats.megatron_layout import (
    EXPERT_NORM,
    EXPERT_NORM_LOCAL,
    leading_dims,
    megatron_places,
)
from meshwright.runtime.checkpoint.formats.megatron_state import COMMON, common_state
from meshwright.runtime.checkpoint.formats.whole_states import WholeStates, WholeTensor
from meshwright.runtime.checkpoint.run_folder import write_errors
from meshwright.runtime.checkpoint.shard_files import BUFFER, PARAMETER
from meshwright.runtime.precision import PRECISIONS
from meshwright.runtime.weights.stored_parts import Part, Place
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND

MASTER, MOMENTS = (
    "optimizer.state.param.",
    {FIRST: "optimizer.state.exp_avg.", SECOND: "optimizer.state.exp_avg_sq."},
)
WITH_FP8_STATES = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
FP8_STATE = "_extra_state"
"""The key of what Transformer Engine keeps of fp8, which is nothing here."""
HELD = 3
"""Tensors of ours that make one of Megatron: queries, keys and values."""


def write_megatron(folder: Path, states: WholeStates, model: ModelGraph) -> None:
    """Write a checkpoint and the file that names it into a folder that holds nothing yet. Raises InputError."""
    place = folder / iteration_name(states.step)
    with write_errors(folder):
        place.mkdir()
    write_dcp(place, *megatron_entries(states, model))
    with write_errors(folder):
        config = {"sharded_backend": BACKEND, "sharded_backend_version": 1}
        (place / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        (folder / NEWEST).write_text(str(states.step), encoding="utf-8")


def megatron_entries(
    states: WholeStates, model: ModelGraph
) -> tuple[dict[Keys, ChunkedTensor], dict[Keys, object]]:
    """Return the tensors and the values of a Megatron checkpoint. Raises UnsupportedError for other models."""
    places = megatron_places(model)
    _check_moments(states)
    compute = PRECISIONS[states.precision].compute if states.precision else None
    tensors: dict[Keys, ChunkedTensor] = {}
    for prefix, state, dtype in _kinds(states, compute):
        latest = _Latest({name: of for (of_state, name), of in states.tensors.items() if of_state in state})
        there = {name: place for name, place in places.items() if name in latest.tensors}
        for key, tensor in _tensors(there, latest, model.architecture, dtype):
            tensors[(f"{prefix}{key}",)] = tensor
            if EXPERT_NORM in key:
                tensors[(f"{prefix}{key.replace(EXPERT_NORM, EXPERT_NORM_LOCAL)}",)] = tensor
    values: dict[Keys, object] = {(key,): [None] for key in _fp8_states(places, model.architecture)}
    return tensors, values | {(COMMON,): [common_state(states, model.architecture)]}


def _check_moments(states: WholeStates) -> None:
    """Raise UnsupportedError if some tensor has one moment alone."""
    first, second = ({name for of, name in states.tensors if of == state} for state in (FIRST, SECOND))
    if first != second:
        rule = "has one moment; Megatron's distributed optimizer is read with the two of Adam"
        raise UnsupportedError(Problem("optimizer", min(first ^ second), rule, "--to dcp"))


def _kinds(
    states: WholeStates, compute: torch.dtype | None
) -> Iterator[tuple[str, tuple[str, ...], torch.dtype | None]]:
    """Yield the prefix of keys, the states of ours and the dtype, of weights, the master copy and moments."""
    yield "", (PARAMETER, BUFFER), compute
    if any(state == FIRST for state, _ in states.tensors):
        yield MASTER, (PARAMETER,), None
        for state, prefix in MOMENTS.items():
            yield prefix, (state,), None


def _tensors(
    places: Mapping[str, Place], latest: "_Latest", arch: Architecture, dtype: torch.dtype | None
) -> Iterator[tuple[str, ChunkedTensor]]:
    """Yield Megatron's tensors with a chunk for each layer and expert."""
    members: dict[str, dict[int, list[tuple[str, int, Part]]]] = {}
    for name, place in places.items():
        for index, part in enumerate(place.parts):
            at = part.stack[0] if part.stack else 0
            members.setdefault(part.name, {}).setdefault(at, []).append((name, index, part))
    for key, stacked in members.items():
        name, _, part = next(iter(stacked.values()))[0]
        inner = replace(part, stack=None).stored_shape
        lead = leading_dims(arch, part)
        wide = latest.tensors[name].dtype if dtype is None or key.endswith("expert_bias") else dtype
        chunks = tuple(
            TensorChunk(
                (*(int(i) for i in np.unravel_index(at, lead)), *(0,) * len(inner))
                if lead
                else (0,) * len(inner),
                ((1,) * len(lead)) + inner,
                _joined(of, places, latest, (1,) * len(lead) + inner, wide),
            )
            for at, of in sorted(stacked.items())
        )
        yield key, ChunkedTensor((*lead, *inner), wide, chunks)


def _joined(
    of: list[tuple[str, int, Part]],
    places: Mapping[str, Place],
    latest: "_Latest",
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Callable[[], torch.Tensor]:
    """Return a function that puts the parts of one layer or expert together; rows that pad a vocabulary are zeros."""

    def read() -> torch.Tensor:
        whole = torch.zeros(shape, dtype=dtype)
        inner = whole.view(replace(of[0][2], stack=None).stored_shape)
        for name, index, part in of:
            replace(part, stack=None).put(places[name].piece(latest.read(name), index).to(dtype), inner)
        return whole

    return read


class _Latest:
    """Tensors of a state; the latest are kept, since experts and parts of one tensor are written one by one."""

    def __init__(self, tensors: Mapping[str, WholeTensor]) -> None:
        self.tensors = tensors
        self._held: OrderedDict[str, torch.Tensor] = OrderedDict()

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor."""
        if name not in self._held:
            self._held[name] = self.tensors[name].read()
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        return self._held[name]


def _fp8_states(places: Mapping[str, Place], arch: Architecture) -> Iterator[str]:
    """Yield the keys of empty states of fp8: of every matrix and norm, and of every layer's attention."""
    modules = {}
    for place in places.values():
        for part in place.parts:
            module = part.name.rpartition(".")[0]
            if module.endswith((*WITH_FP8_STATES, "layernorm")):
                modules[module] = leading_dims(arch, part)
            if module.endswith("linear_qkv"):
                modules[module.replace("linear_qkv", "core_attention")] = leading_dims(arch, part)
    for module, lead in modules.items():
        dims = lead or (1,)
        for at in np.ndindex(*dims):
            yield f"{module}.{FP8_STATE}/shard_{'.'.join(map(str, at))}_{'.'.join(map(str, dims))}"
