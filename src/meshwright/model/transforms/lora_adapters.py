"""Low-rank adapters (Hu et al., arXiv 2106.09685): the model is frozen, small products added to its layers' ones train.

Each linear operator y = x·Wᵀ of a decoder layer gets y + (x·Aᵀ)·Bᵀ with A (rank, inputs) and B (outputs, rank). A
column split cuts B, a row split A, like the operator itself; A reads the input that the operator saves anyway.
Experts get none. Embedding, norms, routers and head are frozen too.
"""

from dataclasses import replace

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Linear, Operator, Parameter

DEFAULT_RANK = 32


def with_adapters(model: ModelGraph, rank: int = DEFAULT_RANK) -> ModelGraph:
    """Return the model with adapters in its layers and everything else frozen; unchanged if it has adapters already."""
    parameters = (
        parameter for block in model.blocks for op in block.operators for parameter in op.parameters
    )
    if not all(parameter.trained for parameter in parameters):
        return model
    return replace(model, blocks=tuple(_adapted(block, rank) for block in model.blocks))


def _adapted(block: Block, rank: int) -> Block:
    operators: list[Operator] = []
    for op in block.operators:
        frozen = tuple(replace(parameter, trained=False) for parameter in op.parameters)
        operators.append(replace(op, parameters=frozen))
        if block.kind == "layer" and isinstance(op, Linear):
            operators += _adapter(op, rank)
    return replace(block, operators=tuple(operators))


def _adapter(op: Linear, rank: int) -> tuple[Linear, Linear]:
    row, column = op.split == "row", op.split == "column"
    down = Parameter(f"{op.name}.adapter_in", (rank, op.inputs), tp_dim=1 if row else None)
    up = Parameter(f"{op.name}.adapter_out", (op.outputs, rank), tp_dim=0 if column else None)
    common = {"place": op.place, "recompute": op.recompute}
    return (
        Linear(
            name=f"{op.name}.adapter_in",
            inputs=op.inputs,
            outputs=rank,
            split="row" if row else "whole",
            saves_input=False,
            parameters=(down,),
            **common,  # type: ignore[arg-type]
        ),
        Linear(
            name=f"{op.name}.adapter_out",
            inputs=rank,
            outputs=op.outputs,
            split="column" if column else "whole",
            parameters=(up,),
            **common,  # type: ignore[arg-type]
        ),
    )
