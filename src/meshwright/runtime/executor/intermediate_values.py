"""Values that flow through a block: results still to be read, and gradients being summed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Value = Any
"""A tensor; between a projection and attention it may be a tuple of tensors."""


@dataclass
class Results:
    """Results of operators by name, each dropped when the last of its ``readers`` has taken it."""

    readers: Mapping[str, int]
    held: dict[str, Value] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, value: Value) -> None:
        """Hold a result for its readers."""
        if self.readers[name]:
            self.held[name], self.left[name] = value, self.readers[name]

    def take(self, name: str) -> Value:
        """Return a result to one of its readers."""
        self.left[name] -= 1
        return self.held[name] if self.left[name] else self.held.pop(name)

    def __contains__(self, name: str) -> bool:
        return name in self.held


@dataclass
class Gradients:
    """Gradients of results by name, summed over their readers."""

    held: dict[str, Value] = field(default_factory=dict)

    def add(self, name: str, gradient: Value) -> None:
        """Add one reader's gradient. The newer tensor is overwritten by the sum."""
        self.held[name] = together(self.held.get(name), gradient)

    def take(self, name: str) -> Value:
        """Return and remove the sum over all readers; None if there is no gradient."""
        return self.held.pop(name)


@dataclass
class StageValues:
    """Values that blocks of a stage publish for later ones, the latest of each name, and their summed gradients."""

    values: dict[str, Value] = field(default_factory=dict)
    gradients: dict[str, Value] = field(default_factory=dict)

    def add_gradient(self, name: str, gradient: Value) -> None:
        """Add the gradient of a block that read a value."""
        self.gradients[name] = together(self.gradients.get(name), gradient)


def together(before: Value, new: Value) -> Value:
    """Return the sum of two gradients, part by part; None counts as zero. ``new`` may be overwritten."""
    if before is None or new is None:
        return before if new is None else new
    if isinstance(new, torch.Tensor):
        return new.add_(before)
    return tuple(together(a, b) for a, b in zip(before, new, strict=True))


def of_all(values: Sequence[Value]) -> Value:
    """Return an operator's input: the one result that it reads, or a tuple of several."""
    return tuple(values) if len(values) > 1 else values[0]
