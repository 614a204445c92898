"""Initial values of adapters, and the tensors of a base and its adapters together.

A is uniform over ±1/√inputs (He's rule with a = √5, as in ``peft``) and B is zero, so that training begins with the
base. A tensor depends on the seed and its name only.
"""

from collections.abc import Iterator, Mapping
from math import sqrt

import torch
from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapter_shapes
from meshwright.runtime.weights.random_tensors import generator_of

DOWN = ".lora_A.weight"
"""What the name of an A ends with."""


class InitialAdapters(Mapping[str, Tensor]):
    """The adapters of a model by name, drawn on access."""

    def __init__(self, model: ModelGraph, seed: int) -> None:
        self._shapes, self._seed = adapter_shapes(model), seed

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if not name.endswith(DOWN):
            return torch.zeros(shape)
        drawn = torch.rand(shape, generator=generator_of(name, self._seed), dtype=torch.float64)
        return ((2 * drawn - 1) / sqrt(shape[-1])).to(torch.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


class BaseAndAdapters(Mapping[str, Tensor]):
    """The tensors of a base, and of its adapters."""

    def __init__(self, base: Mapping[str, Tensor], adapters: Mapping[str, Tensor]) -> None:
        self._base, self._adapters = base, adapters

    def __getitem__(self, name: str) -> Tensor:
        return self._adapters[name] if name in self._adapters else self._base[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._base, *self._adapters)))

    def __len__(self) -> int:
        return sum(1 for _ in self)
