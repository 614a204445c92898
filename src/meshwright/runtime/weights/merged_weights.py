"""The weights of a base with its adapters added: W + alpha/rank · B·A, computed in fp32 and rounded once.

W is what the adapters were trained on: 16 bits, or those of a quantised base, opened.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices, base_shapes, named_parameters
from meshwright.runtime.weights.base_quantisation import QUANTISERS, rounded


class MergedWeights(Mapping[str, Tensor]):
    """The tensors of a base by name, each merged on access."""

    def __init__(
        self,
        model: ModelGraph,
        base: Mapping[str, Tensor],
        adapters: Mapping[str, Tensor],
        dtype: torch.dtype,
    ) -> None:
        self._base, self._adapters, self._dtype = base, adapters, dtype
        self._names = tuple(base_shapes(model))
        self._storage = {name: p.storage for name, p in named_parameters(model).items()}
        self._products = {
            f"{unit}.{matrix.name}.weight": (f"{unit}.{matrix.up}", f"{unit}.{matrix.down}", adapter.scale)
            for unit, adapter, matrix in adapted_matrices(model)
            if not adapter.of_each_replica  # those lie in the base already
        }

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._base[name]
        if name not in self._storage:  # a buffer
            return tensor
        tensor, storage = tensor.to(self._dtype), self._storage[name]
        if storage is not None and storage in QUANTISERS:
            tensor = rounded(tensor, storage)
        if name in self._products:
            up, down, scale = self._products[name]
            change = self._adapters[up].to(torch.float32) @ self._adapters[down].to(torch.float32)
            tensor = (tensor.to(torch.float32) + scale * change).to(self._dtype)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
