"""Rename the states of a DCP checkpoint that has Hugging Face names, as FSDP2 saves a model of transformers.

Its tensors may be ours transposed, stacked or joined; each of ours is read from its part
(``runtime/weights/stored_parts.py``).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import named_buffers, stored_shapes
from meshwright.runtime.checkpoint.formats.whole_states import State, WholeStates, WholeTensor
from meshwright.runtime.checkpoint.shard_files import BUFFER, PARAMETER
from meshwright.runtime.weights.family_tensor_names import checkpoint_of, prefixed, stored_places
from meshwright.runtime.weights.stored_parts import Part, Place


def with_our_names(states: WholeStates, model: ModelGraph) -> WholeStates:
    """Return states by our names; as they are, if they have no Hugging Face names. Buffers become buffers."""
    tensors, left_out = dict(states.tensors), states.left_out
    names = {name for state, name in tensors if state == PARAMETER}
    if not names <= stored_shapes(model).keys():
        places = stored_places(model)
        prefix = _prefix(names, model, places)
        if prefix is not None:
            tensors = dict(_renamed(tensors, places, prefix))
            used = {prefixed(prefix, part.name) for place in places.values() for part in place.parts}
            left_out = (*left_out, *sorted(names - used))
    buffers = named_buffers(model)
    tensors = {
        (BUFFER if state == PARAMETER and name in buffers else state, name): of
        for (state, name), of in tensors.items()
    }
    return replace(states, tensors=tensors, left_out=left_out)


def _prefix(there: Collection[str], model: ModelGraph, places: Mapping[str, Place]) -> str | None:
    """Return the prefix under which a checkpoint has the parts of all tensors; None if it has not."""
    for prefix in checkpoint_of(model.architecture.family).prefixes:
        if all(prefixed(prefix, part.name) in there for place in places.values() for part in place.parts):
            return prefix
    return None


def _renamed(
    tensors: Mapping[State, WholeTensor], places: Mapping[str, Place], prefix: str
) -> Iterator[tuple[State, WholeTensor]]:
    """Yield the states of each of our tensors that the source has."""
    for state in dict.fromkeys(state for state, _ in tensors):
        for name, place in places.items():
            parts = {part.name: tensors.get((state, prefixed(prefix, part.name))) for part in place.parts}
            held = {key: of for key, of in parts.items() if of is not None}
            if len(held) == len(parts):
                dtype = next(iter(held.values())).dtype
                yield (state, name), WholeTensor(place.shape, dtype, _Reading(place, held).read)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The parts of a tensor of ours."""

    place: Place
    parts: Mapping[str, WholeTensor]

    def read(self) -> Tensor:
        """Return the tensor; a stored one is read once."""
        held = {name: of.read() for name, of in self.parts.items()}

        def stored(part: Part) -> Any:
            return held[part.name]

        return self.place.read(stored)
