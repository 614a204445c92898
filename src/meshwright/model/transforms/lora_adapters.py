"""Adapters (``workload/adapter.py``): the model is frozen, small products added to its layers' ones train.

A plan names the matrices that get one (``model/adapter_targets.py``). Each of them has its own A (rank, inputs) and B
(outputs, rank), stacked over experts where the matrix is; those of one operator are one ``LowRank`` after it, which
reads its result and its input. The operators themselves are frozen: they keep no input for weight gradients, which the
first ``LowRank`` on that input does.

Without ``workload.adapter`` each linear operator of a layer has one pair of matrices, whatever it fuses, and experts
have none: every operator y = x·Wᵀ becomes y + (x·Aᵀ)·Bᵀ, A reads the input that the operator saves anyway. Embedding,
norms, routers and head are frozen either way.
"""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.model.adapter_targets import chosen_targets, targets_of
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.data_flow import sources
from meshwright.model.operators.operator_types import (
    AdaptedMatrix,
    ExpertLinear,
    ExpertLowRank,
    Linear,
    LowRank,
    Operator,
    Parameter,
)
from meshwright.workload.adapter import DEFAULT_RANK, Adapter
from meshwright.workload.base_types import HALF

SUFFIX = ".adapter"
"""What the name of an operator's ``LowRank`` ends with."""


def with_adapters(model: ModelGraph, adapter: Adapter | None = None, *, halves: bool = False) -> ModelGraph:
    """Return the model with adapters and everything else frozen; unchanged if it has some already.

    ``adapter`` None: one pair of matrices for each linear operator. ``halves``: frozen parameters have 16 bits where
    the stack keeps trained ones in fp32, or gathers them apart.
    """
    if has_adapters(model):
        return _stored(model) if halves and adapter is not None else model
    if adapter is None:
        return replace(model, blocks=tuple(_with_pairs(block, DEFAULT_RANK) for block in model.blocks))
    targets = chosen_targets(model, adapter.targets)
    return replace(
        model, blocks=tuple(_with_products(block, adapter, targets, halves) for block in model.blocks)
    )


def _stored(model: ModelGraph) -> ModelGraph:
    """Return a model with adapters whose frozen parameters have 16 bits where they have no type of their own."""

    def stored(parameter: Parameter) -> Parameter:
        of_its_own = parameter.trained or parameter.storage is not None
        return parameter if of_its_own else replace(parameter, storage=HALF)

    def block(of: Block) -> Block:
        operators = tuple(replace(op, parameters=tuple(map(stored, op.parameters))) for op in of.operators)
        return replace(of, operators=operators)

    return replace(model, blocks=tuple(map(block, model.blocks)))


def has_adapters(model: ModelGraph) -> bool:
    """Return true if some parameter is frozen, as all but adapters are."""
    return any(not p.trained for block in model.blocks for op in block.operators for p in op.parameters)


def with_stacked_pairs(model: ModelGraph, replicas: int) -> ModelGraph:
    """Return a model with the pairs of all data-parallel ranks, where each has its own: one pair of all their ranks."""

    def stacked(op: Operator) -> Operator:
        if not isinstance(op, LowRank) or not op.of_each_replica:
            return op
        pairs = tuple(replace(p, shape=stacked_shape(op, p, replicas)) for p in op.parameters)
        return replace(op, rank=op.rank * replicas, parameters=pairs)

    blocks = (replace(block, operators=tuple(map(stacked, block.operators))) for block in model.blocks)
    return replace(model, blocks=tuple(blocks)) if replicas > 1 else model


def stacked_shape(op: LowRank, parameter: Parameter, replicas: int) -> tuple[int, ...]:
    """Return the shape of the A or B of all data-parallel ranks together."""
    shape = list(parameter.shape)
    shape[op.rank_dim(parameter.name)] *= replicas
    return tuple(shape)


def _with_products(block: Block, adapter: Adapter, targets: tuple[str, ...], halves: bool) -> Block:
    of = sources(block.operators)
    operators: list[Operator] = []
    results: dict[str, str] = {}
    kept: set[tuple[str, ...]] = set()
    for op in block.operators:
        frozen = _frozen(op, block, adapter, halves)
        operators.append(replace(frozen, reads=tuple(results.get(name, name) for name in op.reads)))
        matrices = _matrices(op, targets) if block.kind == "layer" else ()
        if matrices:
            inputs = tuple(results.get(name, name) for name in of[op.name])
            of_pair = (
                len(of.get(inputs[0], ())) > 1
            )  # an edge with two results, of which the operator takes one
            saved = (*inputs, op.name) if of_pair else inputs
            product = _low_rank(op, matrices, adapter, inputs, saves_input=saved not in kept)
            kept.add(saved)
            results[op.name] = product.name
            operators.append(product)
    return replace(block, operators=tuple(operators))


def _frozen(op: Operator, block: Block, adapter: Adapter, halves: bool) -> Operator:
    """Return an operator whose parameters are frozen, matrices of layers in the type of the base."""

    def storage(parameter: Parameter) -> str | None:
        base = block.kind == "layer" and isinstance(op, Linear | ExpertLinear)
        is_base = base and parameter.name.endswith(".weight") and parameter.vocab_dim is None
        return (adapter.quantised if is_base else None) or (HALF if halves else None)

    return replace(
        op,
        frozen=bool(op.parameters or op.borrows),
        parameters=tuple(replace(p, trained=False, storage=storage(p)) for p in op.parameters),
        borrows=tuple(replace(p, trained=False) for p in op.borrows),
    )


def _matrices(op: Operator, targets: tuple[str, ...]) -> tuple[AdaptedMatrix, ...]:
    """Return the matrices of an operator that have adapters."""
    found, start = [], 0
    for parameter in op.parameters:
        if not parameter.name.endswith(".weight"):
            continue
        name, outputs = parameter.name.removesuffix(".weight"), parameter.shape[-2:][0]
        if set(targets_of(op, name)) & set(targets):
            found.append(AdaptedMatrix(name=name, start=start, outputs=outputs))
        start += outputs
    return tuple(found)


def _low_rank(
    op: Operator,
    matrices: tuple[AdaptedMatrix, ...],
    adapter: Adapter,
    inputs: tuple[str, ...],
    *,
    saves_input: bool,
) -> LowRank:
    assert isinstance(op, Linear | ExpertLinear)
    common: Mapping[str, object] = {
        "name": op.name + SUFFIX,
        "place": op.place,
        "recompute": op.recompute,
        "reads": (op.name, *inputs),
        "inputs": op.inputs,
        "outputs": op.outputs,
        "split": op.split,
        "rank": adapter.rank,
        "scale": adapter.scale,
        "matrices": matrices,
        "saves_input": saves_input,
        "parameters": tuple(p for matrix in matrices for p in _pair(op, matrix, adapter)),
    }
    if isinstance(op, ExpertLinear):
        return ExpertLowRank(experts=op.experts, experts_per_token=op.experts_per_token, **common)  # type: ignore[arg-type]
    return LowRank(**common)  # type: ignore[arg-type]


def _pair(op: Linear | ExpertLinear, matrix: AdaptedMatrix, adapter: Adapter) -> tuple[Parameter, Parameter]:
    """Return A and B of a matrix, cut over tp as it is."""
    stack = (op.experts,) if isinstance(op, ExpertLinear) else ()
    dims, ep_dim = len(stack), 0 if stack else None
    row, column = op.split == "row", op.split == "column"
    own = adapter.of_each_replica
    return (
        Parameter(
            matrix.down,
            (*stack, adapter.rank, op.inputs),
            tp_dim=dims + 1 if row else None,
            ep_dim=ep_dim,
            of_each_replica=own,
        ),
        Parameter(
            matrix.up,
            (*stack, matrix.outputs, adapter.rank),
            tp_dim=dims if column else None,
            ep_dim=ep_dim,
            of_each_replica=own,
        ),
    )


def _with_pairs(block: Block, rank: int) -> Block:
    operators: list[Operator] = []
    for op in block.operators:
        frozen = tuple(replace(parameter, trained=False) for parameter in op.parameters)
        operators.append(replace(op, parameters=frozen))
        if block.kind == "layer" and isinstance(op, Linear):
            operators += _pair_of_operator(op, rank)
    return replace(block, operators=tuple(operators))


def _pair_of_operator(op: Linear, rank: int) -> tuple[Linear, Linear]:
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
