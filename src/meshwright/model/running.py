"""What a model needs to be run: known arithmetic, and a name and a shape for each of its tensors.

A tensor's name is ``UNIT.PARAMETER``: the units are ``embed``, ``layers.0`` …, ``head``; the parameter is named as in
its operator. A tied head has no table of its own, it uses the embedding's.
"""

from collections.abc import Iterator

from meshwright.errors import Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.blocks import EMBEDDING_TABLE
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.numerics import Numerics
from meshwright.model.operators import Parameter

TOKEN_TABLE = f"embed.{EMBEDDING_TABLE}"
CORRECTION = "mlp.gate.e_score_correction_bias"


def numerics_to_run(arch: Architecture) -> Numerics:
    """The arithmetic of a model that shall be run. Raises UnsupportedError with all that is not supported."""
    if arch.numerics.refused:
        raise UnsupportedError(arch.numerics.refused)
    return arch.numerics


def named_parameters(model: ModelGraph) -> dict[str, Parameter]:
    """Every tensor of a model by its name, in the order in which a token meets them.

    Raises UnsupportedError for a model with low-rank adapters.
    """
    if any(op.name.endswith(".adapter_in") for block in model.blocks for op in block.operators):
        rule = "low-rank adapters can be planned, not run yet"
        raise UnsupportedError(Problem("workload.task", model.name, rule, "train all parameters"))
    return {
        f"{unit}.{parameter.name}": parameter
        for unit, block in units(model)
        for operator in block.operators
        for parameter in operator.parameters
        if block.kind == "embed" or parameter.name != EMBEDDING_TABLE
    }


def named_buffers(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Name and shape of what is stored with the weights and gets no gradient: a router's correction of each expert."""
    moe = model.architecture.moe
    return counted_choices(model) if moe is not None and moe.router_correction else {}


def counted_choices(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Name and shape of what is counted of each routed layer: how often each expert is chosen."""
    moe = model.architecture.moe
    if moe is None:
        return {}
    return {
        f"layers.{layer}.{CORRECTION}": (moe.experts,) for layer, routed in enumerate(moe.layers) if routed
    }


def stored_shapes(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter and buffer by its name. Raises UnsupportedError as ``named_parameters``."""
    parameters = {name: parameter.shape for name, parameter in named_parameters(model).items()}
    return parameters | named_buffers(model)


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether weight decay acts on a tensor: not on norms, sinks and biases, stacked ones of experts among them."""
    return len(shape) >= 2 and not name.endswith(".bias")


def units(model: ModelGraph) -> Iterator[tuple[str, Block]]:
    """Name and block of every unit, in order."""
    yield "embed", model.embed
    for layer, index in enumerate(model.layer_blocks):
        yield f"layers.{layer}", model.blocks[index]
    yield "head", model.head
