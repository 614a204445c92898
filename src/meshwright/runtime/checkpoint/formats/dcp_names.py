"""Our entries in a DCP checkpoint: the keys that ``get_state_dict`` of PyTorch gives a model and its optimizer.

=====================================  ==========================================================================
key                                    content
=====================================  ==========================================================================
``model.NAME``                         a parameter or a buffer
``optim.state.NAME.exp_avg``           its first moment, if it has two
``optim.state.NAME.exp_avg_sq``        its second moment
``optim.state.NAME.momentum_buffer``   its moment, if it has one
``optim.state.NAME.step``              steps taken, as ``torch.optim`` stores them
``step``                               steps taken
``meshwright``                         the rest of a manifest as JSON: precision, plan, model, facts, buffers
=====================================  ==========================================================================
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.formats.dcp_folder import METADATA, DcpFolder, damage
from meshwright.runtime.checkpoint.formats.dcp_writer import ChunkedTensor, Keys
from meshwright.runtime.checkpoint.formats.whole_states import State, WholeStates, WholeTensor
from meshwright.runtime.checkpoint.shard_files import BUFFER, PARAMETER
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND

MODEL, OPTIMIZER, STEP, OURS = "model", ("optim", "state"), "step", "meshwright"
MOMENTS = {"exp_avg": FIRST, "exp_avg_sq": SECOND, "momentum_buffer": FIRST}
"""The states of the optimizer's entries."""


def dcp_entries(states: WholeStates) -> tuple[dict[Keys, ChunkedTensor], dict[Keys, object]]:
    """Return the tensors and the values that a DCP checkpoint has of these states."""
    tensors: dict[Keys, ChunkedTensor] = {}
    values: dict[Keys, object] = {(STEP,): torch.tensor(states.step)}
    for (state, name), of in states.tensors.items():
        if state in (PARAMETER, BUFFER):
            tensors[MODEL, name] = ChunkedTensor.of(of)
            continue
        two = (SECOND, name) in states.tensors
        key = "exp_avg_sq" if state == SECOND else "exp_avg" if two else "momentum_buffer"
        tensors[*OPTIMIZER, name, key] = ChunkedTensor.of(of)
        values[*OPTIMIZER, name, STEP] = torch.tensor(float(states.step))
    rest = {
        "precision": states.precision,
        "plan": dict(states.plan),
        "model": dict(states.model),
        "facts": dict(states.facts),
        "buffers": sorted(name for state, name in states.tensors if state == BUFFER),
    }
    values[OURS,] = json.dumps(rest)
    return tensors, values


def states_of_dcp(folder: DcpFolder) -> WholeStates:
    """Return the states of a DCP checkpoint with our keys. Raises InputError if it has none of them."""
    rest = _rest(folder)
    buffers = frozenset(rest.get("buffers", ()))
    tensors, left_out = dict[State, WholeTensor](), list[str]()
    for key, of in folder.tensors.items():
        place = _state(key, buffers)
        if place is not None:
            tensors[place] = WholeTensor(of.shape, of.dtype, lambda key=key: folder.tensor(key))  # type: ignore[misc]
        elif key != STEP and not (key.startswith("optim.") and key.endswith(f".{STEP}")):
            left_out.append(key)
    if not tensors:
        rule = (
            f"holds no key {MODEL}.NAME: its first keys are {', '.join(sorted(folder.tensors)[:3]) or 'none'}"
        )
        raise InputError(damage(folder.path / METADATA, rule))
    return WholeStates(
        tensors=tensors,
        step=_step(folder),
        precision=rest.get("precision"),
        plan=rest.get("plan", {}),
        model=rest.get("model", {}),
        facts=rest.get("facts", {}),
        left_out=tuple(sorted(left_out)),
    )


def _state(key: str, buffers: frozenset[str]) -> State | None:
    """Return the state and the name of a key; None for what no checkpoint of ours holds."""
    first, _, rest = key.partition(".")
    if first == MODEL and rest:
        return (BUFFER if rest in buffers else PARAMETER), rest
    prefix = ".".join((*OPTIMIZER, ""))
    name, _, kind = key.removeprefix(prefix).rpartition(".")
    return (MOMENTS[kind], name) if key.startswith(prefix) and kind in MOMENTS and name else None


def _step(folder: DcpFolder) -> int:
    """Return the steps taken: the entry ``step``, or what the optimizer says, which must be the same everywhere."""
    steps = {int(folder.tensor(key)) for key in _step_keys(folder.tensors) if folder.tensors[key].shape == ()}
    if len(steps) > 1:
        rule = f"tells several numbers of steps: {', '.join(map(str, sorted(steps)[:4]))}"
        raise InputError(damage(folder.path / METADATA, rule))
    return steps.pop() if steps else 0


def _step_keys(tensors: Mapping[str, object]) -> Iterator[str]:
    return (key for key in tensors if key == STEP or (key.startswith("optim.") and key.endswith(f".{STEP}")))


def _rest(folder: DcpFolder) -> dict[str, Any]:
    """Return what our manifest had besides; nothing for a checkpoint of others."""
    if OURS not in folder.values:
        return {}
    text = folder.value(OURS)
    kinds: dict[str, Any] = {
        "precision": (str, type(None)),
        "plan": dict,
        "model": dict,
        "facts": dict,
        "buffers": list,
    }
    try:
        found = json.loads(text)
        if not all(isinstance(found[name], kind) for name, kind in kinds.items()):
            raise TypeError("an entry has another type")
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        rule = f"its entry {OURS!r} cannot be read: {type(error).__name__} {str(error)[:100]}"
        raise InputError(damage(folder.path / METADATA, rule)) from None
    return found
