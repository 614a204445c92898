"""Update rules of the references, written out: by element, and for matrices that Muon takes.

They share no code with the runtime's rules (``runtime/state/update_rules``).
"""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import cast

import torch

from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.hidden_matrices import HiddenMatrix, block_matrices
from meshwright.program.program import Program
from meshwright.runtime.state.update_rules.update_rule import StepValues
from meshwright.runtime.verify.recorded_states import PARAMETER
from meshwright.workload.optimizers.muon import BLOCKWISE
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND, Options

State = dict[str, torch.Tensor]
"""A parameter and its moments by key of ``dtypes``."""
Rule = Callable[[State, torch.Tensor, StepValues], State]
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b, c of Newton–Schulz steps (Jordan et al. 2024)."""
LEAST_NORM = 1e-7


def adamw(state: State, gradient: torch.Tensor, step: StepValues) -> State:
    """Return the state after a step of AdamW."""
    beta1, beta2 = cast(tuple[float, float], step.options["betas"])
    first = beta1 * state[FIRST] + (1 - beta1) * gradient
    second = beta2 * state[SECOND] + (1 - beta2) * gradient.square()
    root = (second / (1 - beta2**step.number)).sqrt() + cast(float, step.options["epsilon"])
    kept = state[PARAMETER] * (1 - step.lr * step.weight_decay)
    return {
        PARAMETER: kept - step.lr * first / (1 - beta1**step.number) / root,
        FIRST: first,
        SECOND: second,
    }


def qh_adamw(state: State, gradient: torch.Tensor, step: StepValues) -> State:
    """Return the state after a step of quasi-hyperbolic AdamW: AdamW's means, then a mean with the gradient."""
    omega1, omega2 = cast(tuple[float, float], step.options["omega"])
    beta1, beta2 = cast(tuple[float, float], step.options["betas"])
    new = adamw(state, gradient, step)
    momentum = (1 - omega1) * (new[FIRST] / (1 - beta1**step.number)) + omega1 * gradient
    square = (1 - omega2) * (new[SECOND] / (1 - beta2**step.number)) + omega2 * gradient.square()
    kept = state[PARAMETER] * (1 - step.lr * step.weight_decay)
    change = momentum / (square.sqrt() + cast(float, step.options["epsilon"]))
    return new | {PARAMETER: kept - step.lr * change}


def sgd(state: State, gradient: torch.Tensor, step: StepValues) -> State:
    """Return the state after a step of SGD."""
    momentum = cast(float, step.options["momentum"])
    gradient = gradient + step.weight_decay * state[PARAMETER]
    if not momentum:
        return {PARAMETER: state[PARAMETER] - step.lr * gradient}
    first = momentum * state[FIRST] + gradient
    change = gradient + momentum * first if step.options["nesterov"] else first
    return {PARAMETER: state[PARAMETER] - step.lr * change, FIRST: first}


def lion(state: State, gradient: torch.Tensor, step: StepValues) -> State:
    """Return the state after a step of Lion."""
    _, beta2 = cast(tuple[float, float], step.options["betas"])
    change = lion_average(state[FIRST], gradient, step.options).sign()
    return {
        PARAMETER: state[PARAMETER] * (1 - step.lr * step.weight_decay) - step.lr * change,
        FIRST: beta2 * state[FIRST] + (1 - beta2) * gradient,
    }


def lion_average(first: torch.Tensor, gradient: torch.Tensor, options: Options) -> torch.Tensor:
    """Return the average whose sign is Lion's step."""
    beta1, _ = cast(tuple[float, float], options["betas"])
    return beta1 * first + (1 - beta1) * gradient


REFERENCE_RULES: Mapping[str, Rule] = {"adamw": adamw, "sgd": sgd, "lion": lion, "qh-adamw": qh_adamw}
"""The rules by element, by the names of ``workload/optimizers``."""


def muon_momentum(
    first: torch.Tensor, gradient: torch.Tensor, options: Options
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Muon's new momentum, and the matrix that is orthogonalised."""
    momentum = cast(float, options["momentum"])
    first = momentum * first + (1 - momentum) * gradient
    return first, momentum * first + (1 - momentum) * gradient if options["nesterov"] else first


def muon_change(
    direction: torch.Tensor, matrix: HiddenMatrix, shape: LocalShape, options: Options
) -> torch.Tensor:
    """Return the scaled orthogonal matrices of a whole parameter: (outputs, inputs), or so for each expert.

    ``blockwise`` takes the block of every rank of tensor parallelism by itself.
    """
    matrices = direction.reshape(-1, *direction.shape[-2:])
    width = int(matrix.width(shape)) if options["tensor"] == BLOCKWISE else 1
    side = -2 if matrix.cut == "outputs" else -1
    block = -(-matrices.shape[side] // width)
    size = [*matrices.shape[-2:]]
    size[side] = block
    factor = scale_factor(str(options["scale"]), *size)
    steps = int(cast(float, options["steps"]))
    changed = [
        torch.cat([factor * orthogonal(part, steps) for part in one.split(block, side)], side)
        for one in matrices
    ]
    return torch.stack(changed).reshape(direction.shape)


def orthogonal(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """Return a matrix whose singular values are near 1, by Newton–Schulz steps in its own dtype."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.square().sum().sqrt().clamp(min=LEAST_NORM)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + b * gram @ x + c * gram @ (gram @ x)
    return x


def scale_factor(scale: str, outputs: int, inputs: int) -> float:
    """Return Muon's factor of a matrix."""
    factors = {
        "shape": sqrt(max(1.0, outputs / inputs)),
        "spectral": sqrt(max(outputs, inputs)),
        "match-rms-adamw": 0.2 * sqrt(max(outputs, inputs)),
        "unit-rms": sqrt(outputs / inputs),
    }
    return factors[scale]


def hidden_matrices(program: Program) -> dict[str, HiddenMatrix]:
    """Return the parameters of the whole model that Muon takes; none with another optimizer."""
    found: dict[str, HiddenMatrix] = {}
    if not program.stack.optimizer.kind.of_matrices:
        return found
    for stage in program.stages:
        blocks = [program.blocks[index] for index in stage.blocks]
        layers = (block for block in blocks if block.kind == "layer")
        for number, block in zip(stage.layers, layers, strict=True):
            for names, matrix in block_matrices(block, program.stack):
                found |= {f"layers.{number}.{name}": matrix for name in names}
    return found
