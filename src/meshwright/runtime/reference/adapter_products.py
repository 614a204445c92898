"""Add each adapter's product to its matrix: W + alpha/rank · B·A (Hu et al., arXiv 2106.09685), experts stacked.

Pairs of each data-parallel rank (arXiv 2505.18777) lie in W already. They get gradients as if W were R + B·A with
R = W − B·A frozen, and change no result.
"""

from collections.abc import Mapping

from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import adapted_matrices


def with_products(model: ModelGraph, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return a model's tensors with the products of its adapters added; the same where it has none."""
    changed = {}
    for unit, adapter, matrix in adapted_matrices(model):
        down, up = tensors[f"{unit}.{matrix.down}"], tensors[f"{unit}.{matrix.up}"]
        name = f"{unit}.{matrix.name}.weight"
        product = adapter.scale * (up @ down)
        changed[name] = tensors[name] + (product - product.detach() if adapter.of_each_replica else product)
    return {**tensors, **changed} if changed else tensors
