"""What flows through a block: results that are still to be read, and gradients that come together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Value = Any
"""A tensor; between a projection and attention it may be a tuple of them."""


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
        """Read a result."""
        self.left[name] -= 1
        return self.held[name] if self.left[name] else self.held.pop(name)

    def __contains__(self, name: str) -> bool:
        return name in self.held


@dataclass
class Gradients:
    """Gradients of results by name, summed over those who read them."""

    held: dict[str, Value] = field(default_factory=dict)

    def add(self, name: str, gradient: Value) -> None:
        """Add what one reader has found. The sum takes the place of the newer one."""
        self.held[name] = together(self.held.get(name), gradient)

    def take(self, name: str) -> Value:
        """The sum, when all readers have been there; None where nothing has a gradient."""
        return self.held.pop(name)


def together(before: Value, new: Value) -> Value:
    """The sum of two gradients, part by part; None stands for nothing. ``new`` may be overwritten."""
    if before is None or new is None:
        return before if new is None else new
    if isinstance(new, torch.Tensor):
        return new.add_(before)
    return tuple(together(a, b) for a, b in zip(before, new, strict=True))


def of_all(values: Sequence[Value]) -> Value:
    """What an operator works on: the result that it reads, or several of them together."""
    return tuple(values) if len(values) > 1 else values[0]
