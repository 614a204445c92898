"""Initial values of HD-PiSSA's adapters: the leading singular triplets of each matrix (arXiv 2505.18777, 2404.02948).

With W = U·S·Vᵀ, A = √S·Vᵀ and B = U·√S of the leading triplets, largest first; data-parallel rank k has those from
k·rank on. The entry of largest magnitude of each column of U is positive, so that all ranks find the same signs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices, adapter_shapes
from meshwright.runtime.weights.adapter_values import DOWN


class Pair(NamedTuple):
    """A and B of a matrix: (rank, inputs) and (outputs, rank)."""

    down: Tensor
    up: Tensor


class PrincipalPairs(Mapping[str, Tensor]):
    """The adapters of a model whose pairs are stacked, by name; a matrix is decomposed on access to one of its pair."""

    def __init__(self, base: Mapping[str, Tensor], stacked: ModelGraph) -> None:
        self._base, self._shapes = base, adapter_shapes(stacked)
        self._of: dict[str, tuple[str, int]] = {}
        for unit, op, matrix in adapted_matrices(stacked):
            for name in (matrix.down, matrix.up):
                self._of[f"{unit}.{name}"] = f"{unit}.{matrix.name}.weight", op.rank
        self._last: tuple[str, Pair] | None = None

    def __getitem__(self, name: str) -> Tensor:
        matrix, rank = self._of[name]
        if self._last is None or self._last[0] != matrix:
            self._last = matrix, principal_pair(self._base[matrix], rank)
        pair = self._last[1]
        return pair.down if name.endswith(DOWN) else pair.up

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def principal_pair(matrix: Tensor, rank: int) -> Pair:
    """Return A and B of the ``rank`` leading singular triplets, in fp64."""
    left, values, right = torch.linalg.svd(matrix.to(torch.float64), full_matrices=False)
    left, roots, right = left[:, :rank], values[:rank].sqrt(), right[:rank]
    signs = left.gather(0, left.abs().argmax(0, keepdim=True)).sign()[0]
    return Pair((signs * roots)[:, None] * right, left * (signs * roots))
