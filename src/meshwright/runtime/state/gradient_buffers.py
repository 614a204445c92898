"""The buffer in which a unit's gradients are accumulated, and what is added to it.

Vectors (norms, biases), whose gradients I computes before any W has run, wait in buffers of their own, so that the
large buffer need not exist until the first weight gradient. Where gradients are narrow, a micro-batch's gradient is
computed in a wide dtype and rounded when it is added.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import torch

from meshwright.program.pass_items import Collective
from meshwright.program.rank_units.unit_layout import Place, UnitLayout, adjacent
from meshwright.runtime.precision import Precision


class Addition(NamedTuple):
    """A micro-batch's gradient of a parameter, flat, before it is rounded; without a name: a reduction by ``items``."""

    name: str
    values: torch.Tensor | None
    items: tuple[Collective, ...] = ()


@dataclass
class GradientBuffer:
    """Gradients of all parameters of a unit; ``flat`` is None before the first weight gradient.

    With ``reuses_memory`` a step fills the buffer once, and its memory serves the next one. ``additions``: what was
    added, in order, where a proof records it.
    """

    layout: UnitLayout
    precision: Precision
    device: torch.device
    reuses_memory: bool
    flat: torch.Tensor | None = None
    additions: list[Addition] | None = None
    _places: dict[str, Place] = field(init=False)
    _room: torch.Tensor | None = None
    _unwritten: set[str] = field(default_factory=set)
    _early: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = self.layout.places

    @contextmanager
    def adding(self, name: str) -> Iterator[torch.Tensor]:
        """Lend a buffer to which a micro-batch adds its gradient of a parameter; a narrow sum is rounded once."""
        if self.additions is None and self.precision.gradient == self.precision.statistic:
            yield self.of(name)
            return
        part = torch.zeros(self._places[name].shape, dtype=self.precision.statistic, device=self.device)
        yield part
        self._add((name,), part)

    def add_product(self, names: Sequence[str], g: torch.Tensor, x: torch.Tensor) -> None:
        """Add gᵀ·x to the gradients of adjacent matrices; the first product overwrites."""
        if self.additions is not None:
            for name in self._unwritten.intersection(names):
                self.of(name)
            self._add(names, g.t() @ x)
            return
        total, first = self._product_of(names)
        if not self.precision.mixed:
            total.addmm_(g.t(), x, beta=0 if first else 1)
        elif first:
            total.copy_(g.t() @ x)
        else:
            total += g.t() @ x

    def of(self, name: str) -> torch.Tensor:
        """Return the buffer of a parameter's gradient, zero at first."""
        shape = self._places[name].shape
        if self.flat is None and len(shape) == 1:
            if name not in self._early:
                self._early[name] = torch.zeros(shape, dtype=self.precision.gradient, device=self.device)
            return self._early[name]
        part = self._places[name].of(self._whole())
        if name in self._unwritten:
            self._unwritten.remove(name)
            part.zero_()
        return part

    def take(self, items: Sequence[Collective]) -> torch.Tensor:
        """Return all gradients for a reduction by ``items``; later passes add to a new buffer."""
        gradients = self._whole()
        for name in tuple(self._unwritten):
            self.of(name)
        if self.additions is not None:
            self.additions.append(Addition("", None, tuple(items)))
        self.flat = None
        return gradients

    def _add(self, names: Sequence[str], part: torch.Tensor) -> None:
        """Add to the gradients of adjacent parameters, and record it where asked to."""
        total = self.of(names[0]) if len(names) == 1 else self._product_of(names)[0]
        total += part.view_as(total)
        if self.additions is not None:
            sizes = [prod(self._places[name].shape) for name in names]
            parts = part.detach().flatten().clone().split(sizes)
            self.additions += map(Addition, names, parts)

    def _product_of(self, names: Sequence[str]) -> tuple[torch.Tensor, bool]:
        """Return the buffer of adjacent matrices' gradients, and whether nothing was written to it."""
        total = adjacent(self._whole(), [self._places[name] for name in names])
        first = self._unwritten.issuperset(names)
        assert first or self._unwritten.isdisjoint(names), names
        self._unwritten.difference_update(names)
        return total, first

    def _whole(self) -> torch.Tensor:
        if self.flat is None:
            self.flat = self._room
            if self.flat is None:
                self.flat = torch.empty(self.layout.size, dtype=self.precision.gradient, device=self.device)
            self._room = self.flat if self.reuses_memory else None
            self._unwritten = set(self._places) - self._early.keys()
            for name, vector in self._early.items():
                self._places[name].of(self.flat).copy_(vector)
            self._early.clear()
        return self.flat
