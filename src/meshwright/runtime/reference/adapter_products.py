"""Add each adapter's product to its matrix: W + alpha/rank · B·A (Hu et al., arXiv 2106.09685), experts stacked."""

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
        changed[name] = tensors[name] + adapter.scale * (up @ down)
    return {**tensors, **changed} if changed else tensors
