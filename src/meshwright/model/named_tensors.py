"""Names and shapes of all tensors of a runnable model, and its arithmetic.

A tensor's name is ``UNIT.PARAMETER``: the units are ``embed``, ``encoder.0`` …, ``encoder_end``, ``layers.0`` …,
``head``; the parameter is named as in its operator. A tied head has no table of its own, it uses the embedding's.
"""

from collections.abc import Iterator

from meshwright.errors import Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.numerics import Numerics
from meshwright.model.operators.blocks import EMBEDDING_TABLE
from meshwright.model.operators.mamba import FILTERS
from meshwright.model.operators.operator_types import AdaptedMatrix, LowRank, Parameter

TOKEN_TABLE = f"embed.{EMBEDDING_TABLE}"
ENCODER_END = "encoder_end"
CORRECTION = "mlp.gate.e_score_correction_bias"


def runnable_numerics(arch: Architecture) -> Numerics:
    """Return the arithmetic of a model to run. Raises UnsupportedError with everything that is not supported."""
    if arch.numerics.refused:
        raise UnsupportedError(arch.numerics.refused)
    return arch.numerics


def named_parameters(model: ModelGraph) -> dict[str, Parameter]:
    """Return every parameter of a model by name, in the order in which a token meets them.

    Raises UnsupportedError for a model with adapters that no ``workload.adapter`` describes.
    """
    if any(op.name.endswith(".adapter_in") for block in model.blocks for op in block.operators):
        rule = "adapters of no written form can be planned, not run"
        raise UnsupportedError(Problem("workload.task", "lora", rule, "write workload.adapter"))
    return {
        f"{unit}.{parameter.name}": parameter
        for unit, block in units(model)
        for operator in block.operators
        for parameter in operator.parameters
        if block.kind == "embed" or parameter.name != EMBEDDING_TABLE
    }


def adapted_matrices(model: ModelGraph) -> Iterator[tuple[str, LowRank, AdaptedMatrix]]:
    """Yield every matrix that an adapter adds to: the name of its unit, its adapter's operator, and itself."""
    for unit, block in units(model):
        for operator in block.operators:
            if isinstance(operator, LowRank):
                yield from ((unit, operator, matrix) for matrix in operator.matrices)


def adapter_shapes(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Return the shape of every adapter's tensor by name: A, then B of each matrix."""
    parameters = named_parameters(model)
    names = (f"{unit}.{name}" for unit, _, m in adapted_matrices(model) for name in (m.down, m.up))
    return {name: parameters[name].shape for name in names}


def base_shapes(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor but the adapters' by name."""
    adapters = adapter_shapes(model)
    return {name: shape for name, shape in stored_shapes(model).items() if name not in adapters}


def named_buffers(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Return name and shape of tensors stored with the weights without gradients: a router's correction biases."""
    moe = model.architecture.moe
    return expert_choice_counts(model) if moe is not None and moe.router_correction else {}


def expert_choice_counts(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Return name and shape of each routed layer's counts of choices by expert."""
    moe = model.architecture.moe
    if moe is None:
        return {}
    return {
        f"layers.{layer}.{CORRECTION}": (moe.experts,) for layer, routed in enumerate(moe.layers) if routed
    }


def stored_shapes(model: ModelGraph) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and buffer by name. Raises UnsupportedError as ``named_parameters``."""
    parameters = {name: parameter.shape for name, parameter in named_parameters(model).items()}
    return parameters | named_buffers(model)


def is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether weight decay applies to a tensor: not to norms, sinks, filters and biases, even stacked."""
    return len(shape) >= 2 and not name.endswith((".bias", *(f"{filter_}.weight" for filter_ in FILTERS)))


def encoder_units(model: ModelGraph) -> list[str]:
    """Return the names of the units of the encoder's blocks, in order."""
    layers = range(len(model.encoder_blocks) - 1)
    return [*(f"encoder.{layer}" for layer in layers), ENCODER_END] if model.encoder_blocks else []


def units(model: ModelGraph) -> Iterator[tuple[str, Block]]:
    """Yield name and block of every unit, in order."""
    yield "embed", model.embed
    yield from zip(encoder_units(model), (model.blocks[index] for index in model.encoder_blocks), strict=True)
    for layer, index in enumerate(model.layer_blocks):
        yield f"layers.{layer}", model.blocks[index]
    yield "head", model.head
