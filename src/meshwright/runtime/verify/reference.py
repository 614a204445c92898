"""The same steps in one process in plain PyTorch: autograd, ``clip_grad_norm_``, ``torch.optim.AdamW``."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.fx.experimental.symbolic_shapes  # the first backward pass imports it: once, before a fork

from meshwright.runtime.optimizer import AdamW
from meshwright.runtime.reference.decoder import reference_loss
from meshwright.runtime.verify.trial import Trial

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Steps:
    """Per step the loss, the norm of all gradients and every gradient before clipping; the parameters at the end."""

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: tuple[Tensors, ...]
    parameters: Tensors


def reference_steps(trial: Trial) -> Steps:
    """What a run of the trial should give."""
    tensors = {name: tensor.requires_grad_() for name, tensor in trial.tensors().items()}
    options = trial.options
    adam = _adam(tensors, options)
    losses, norms, gradients = [], [], []
    for batch in trial.batches():
        adam.zero_grad()
        loss = reference_loss(trial.model, tensors, batch.tokens, batch.labels, batch.counted)
        loss.backward()
        gradients.append({name: _gradient(tensor).clone() for name, tensor in tensors.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(list(tensors.values()), options.clip or torch.inf).item())
        losses.append(loss.item())
        adam.step()
    parameters = {name: tensor.detach() for name, tensor in tensors.items()}
    return Steps(tuple(losses), tuple(norms), tuple(gradients), parameters)


def _adam(tensors: Tensors, options: AdamW) -> torch.optim.AdamW:
    """Weight decay for matrices alone."""
    matrices = [tensor for tensor in tensors.values() if tensor.ndim >= 2]
    vectors = [tensor for tensor in tensors.values() if tensor.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": options.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.lr, betas=options.betas, eps=options.epsilon)


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
