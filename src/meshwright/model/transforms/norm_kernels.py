"""Assign fused norms to the recomputation sets of the product whose kernel computes them.

A kernel that computes a norm and the product behind it (``TELayerNormColumnParallelLinear`` of Transformer Engine)
keeps the norm's result itself. No recomputation of norms reaches it: the norm runs again with its product, or not at
all.
"""

from collections.abc import Collection
from dataclasses import replace

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.data_flow import users
from meshwright.model.operators.operator_types import Norm, Operator


def with_fused_norms(model: ModelGraph, products: Collection[str]) -> ModelGraph:
    """Return the same model, in which norms before ``products`` belong to the recomputation sets of these."""
    return replace(model, blocks=tuple(_with_fused_norms(block, products) for block in model.blocks))


def fused_sets(model: ModelGraph, products: Collection[str]) -> frozenset[str]:
    """Return the recomputation sets of which the kernels of ``products`` leave nothing to run again."""
    return _sets(model) - _sets(with_fused_norms(model, products))


def _sets(model: ModelGraph) -> frozenset[str]:
    return frozenset(name for block in model.blocks for op in block.operators for name in op.recompute)


def _with_fused_norms(block: Block, products: Collection[str]) -> Block:
    using = users(block.operators)

    def placed(op: Operator) -> Operator:
        product = next((user for user in using[op.name] if user.name in products), None)
        return replace(op, recompute=product.recompute) if isinstance(op, Norm) and product else op

    return replace(block, operators=tuple(placed(op) for op in block.operators))
