"""Bytes of weights that a device loads when its replica changes from one layout to another.

A rank of tp holds one of tp equal pieces of each matrix along the dim that is cut, in order; experts are cut over ep,
and each over etp, both in order. Ranks are numbered tp (etp) fastest, then cp and attention_dp, stages last. What a
device needs in the new layout is compared with what it holds in the old one, matrix by matrix: pieces overlap in ranges
of elements, and in whole layers only where both stages have the layer. A tied table is held once. Padding counts.
"""

from collections import Counter
from collections.abc import Iterator
from math import ceil, prod
from typing import NamedTuple

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Operator, Parameter
from meshwright.program.model_states.state_elements import embedding_names
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import layers_of_stages, served_layers
from meshwright.program.serving.storage_formats import StorageFormats


class DevicePlace(NamedTuple):
    """Place of a device in a layout: its stage, and its ranks of tp, etp and ep."""

    stage: int
    tp: int
    etp: int
    ep: int

    @classmethod
    def of(cls, device: int, degrees: ReplicaDegrees) -> "DevicePlace":
        """Return the place of a device of a replica."""
        stage, rank = divmod(device, int(degrees.devices // degrees.pp))
        ep, etp = divmod(rank, int(degrees.etp))
        return cls(stage, rank % int(degrees.tp), etp, ep % int(degrees.ep))


class _Change(NamedTuple):
    """Both layouts, and a device's place in each."""

    before: ReplicaDegrees
    after: ReplicaDegrees
    old: DevicePlace
    new: DevicePlace


def reloaded_weight_bytes(
    model: ModelGraph, formats: StorageFormats, before: ReplicaDegrees, after: ReplicaDegrees
) -> float:
    """Return the bytes that the device with most to load needs in the layout ``after`` and lacks in ``before``."""
    found = []
    for device in range(int(after.devices)):
        places = DevicePlace.of(device, before), DevicePlace.of(device, after)
        found.append(_loaded(model, formats, _Change(before, after, *places)))
    return max(found)


def _loaded(model: ModelGraph, formats: StorageFormats, change: _Change) -> float:
    """Return the bytes that one device loads."""
    total = 0.0
    for (index, held, needed), count in _layer_classes(model, change.before, change.after).items():
        if needed == change.new.stage:
            block = model.blocks[index]
            total += count * _block_bytes(block, model, formats, change, held == change.old.stage)
    return total + _end_bytes(model, formats, change)


def _layer_classes(
    model: ModelGraph, before: ReplicaDegrees, after: ReplicaDegrees
) -> Counter[tuple[int, int, int]]:
    """Return how many layers have the same block, stage before and stage after."""
    layers = served_layers(model)
    stages = [
        [at for at, count in enumerate(layers_of_stages(len(layers), int(one.pp))) for _ in range(count)]
        for one in (before, after)
    ]
    return Counter(zip(layers, *stages, strict=True))


def _block_bytes(
    block: Block, model: ModelGraph, formats: StorageFormats, change: _Change, held: bool
) -> float:
    return sum(_bytes(op, parameter, model, formats, change, held) for op, parameter in _parameters(block))


def _end_bytes(model: ModelGraph, formats: StorageFormats, change: _Change) -> float:
    """Return the bytes of embedding and head, whose tied tables are one."""
    tables = embedding_names(model.blocks)
    has_old, has_new = (
        {"embed": place.stage == 0, "head": place.stage == int(degrees.pp) - 1}
        for place, degrees in ((change.old, change.before), (change.new, change.after))
    )
    total, seen = 0.0, set[str]()
    for end, block in (("embed", model.embed), ("head", model.head)):
        for op, parameter in _parameters(block):
            if not has_new[end] or parameter.name in seen:
                continue
            tied = parameter.name in tables and _has(model.head, parameter.name)
            held = any(has_old.values()) if tied else has_old[end]
            seen |= {parameter.name} if tied else set()
            total += _bytes(op, parameter, model, formats, change, held)
    return total


def _parameters(block: Block) -> Iterator[tuple[Operator, Parameter]]:
    return ((op, parameter) for op in block.operators for parameter in op.parameters)


def _has(block: Block, name: str) -> bool:
    return any(parameter.name == name for _, parameter in _parameters(block))


def _bytes(
    op: Operator,
    parameter: Parameter,
    model: ModelGraph,
    formats: StorageFormats,
    change: _Change,
    held: bool,
) -> float:
    """Return the bytes of a parameter that the device needs and has not."""
    expert = op.place == "expert"
    new = _ranges(parameter, change.after, change.new, expert=expert)
    elements = prod(len(one) for one in new)
    if held:
        old = _ranges(parameter, change.before, change.old, expert=expert)
        elements -= prod(_overlap(one, other) for one, other in zip(old, new, strict=True))
    return elements * formats.bits(op, model.architecture) / 8


def _ranges(
    parameter: Parameter, degrees: ReplicaDegrees, place: DevicePlace, *, expert: bool
) -> list[range]:
    """Return the elements of each dim that a device has."""
    found = []
    for dim, size in enumerate(parameter.shape):
        length = int(degrees.shape.padded_vocab(size)) if dim == parameter.vocab_dim else size
        first = 0
        if dim == parameter.tp_dim:
            cut, rank = (degrees.etp, place.etp) if expert else (degrees.tp, place.tp)
            length = ceil(length / int(cut))
            first = rank * length
        if dim == parameter.ep_dim:
            length = ceil(length / int(degrees.ep))
            first = place.ep * length
        found.append(range(first, first + length))
    return found


def _overlap(one: range, other: range) -> int:
    return max(0, min(one.stop, other.stop) - max(one.start, other.start))
