"""Compute steps without backward passes in one process in plain PyTorch: both losses, the gradient along the noise.

The noise is the runtime's own by definition (``runtime/state/noise.py``), made here for whole parameters. The losses
are those of two copies of the parameters, which are never perturbed themselves.
"""

from collections.abc import Callable, Mapping
from typing import cast

import torch

from meshwright.model.named_tensors import is_matrix, named_parameters
from meshwright.runtime.state.noise import noise, noise_key
from meshwright.runtime.verify.verify_case import VerifyCase

LossOf = Callable[[Mapping[str, torch.Tensor]], float]
"""The loss of a step's batch under given tensors."""
LOSSES, GRADIENT = "both losses", "projected gradient"
"""Names of what a step computes, compared as gradients of other optimizers are."""


@torch.no_grad()
def two_loss_step(
    trial: VerifyCase, tensors: dict[str, torch.Tensor], step: int, loss_of: LossOf
) -> Mapping[str, torch.Tensor]:
    """Take step ``step``, from 0, on the tensors and return its two losses and its projected gradient."""
    options = trial.options.for_optimizer(trial.program.stack.optimizer, "")
    epsilon = trial.program.stack.optimizer.epsilon
    names = list(named_parameters(trial.model))
    z = {name: _whole_noise(step, name, tensors[name]) for name in names}
    plus, minus = (
        loss_of(tensors | {name: tensors[name] + sign * epsilon * z[name] for name in names})
        for sign in (1, -1)
    )
    gradient = (plus - minus) / (2 * epsilon)
    for name in names:
        decay = cast(float, options["weight_decay"]) if is_matrix(name, tensors[name].shape) else 0.0
        tensors[name] = tensors[name] - trial.options.lr * (gradient * z[name] + decay * tensors[name])
    return {
        LOSSES: torch.tensor([plus, minus], dtype=torch.float64),
        GRADIENT: torch.tensor([gradient], dtype=torch.float64),
    }


def _whole_noise(step: int, name: str, tensor: torch.Tensor) -> torch.Tensor:
    elements = torch.arange(tensor.numel())
    return noise(noise_key(0, step, name), elements).view(tensor.shape).to(tensor)
