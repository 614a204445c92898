"""Muon's orthogonalisation of a matrix (Jordan et al. 2024; arXiv 2502.16982), and its scale.

X ← M/‖M‖, then in each step A = XXᵀ, X ← aX + (bA + cA²)X, with the matrix turned so that it has no more rows than
columns. The constants are those of ``torch.optim.Muon``. A matrix of which each rank has some columns needs the sum of
their Gram matrices in each step; the first one's trace is ‖M‖².
"""

from collections.abc import Callable
from math import sqrt

import torch

A, B, C = 3.4445, -4.7750, 2.0315
LEAST_NORM = 1e-7


def orthogonalised(matrix: torch.Tensor, steps: int) -> torch.Tensor:
    """Return a matrix whose singular values are near 1 and whose singular vectors are those of ``matrix``."""
    turned = matrix.size(0) > matrix.size(1)
    x = matrix.mT if turned else matrix
    x = x / x.norm().clamp(min=LEAST_NORM)
    for _ in range(steps):
        x = _step(x, x @ x.mT)
    return x.mT if turned else x


def orthogonalised_columns(
    part: torch.Tensor, steps: int, summed: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return this rank's columns of an orthogonalised matrix; ``summed`` adds all ranks' Gram matrices up."""
    gram = summed(part @ part.mT)
    trace = gram.diagonal().sum(dtype=torch.promote_types(gram.dtype, torch.float32))
    norm = trace.sqrt().clamp(min=LEAST_NORM)
    x, gram = part / norm, gram / norm.square()
    for number in range(steps):
        x = _step(x, summed(x @ x.mT) if number else gram)
    return x


def scale_factor(scale: str, outputs: int, inputs: int) -> float:
    """Return the factor of an orthogonal matrix, as ``workload/optimizers/muon.py`` tabulates it."""
    if scale == "shape":
        return sqrt(max(1.0, outputs / inputs))
    if scale == "unit-rms":
        return sqrt(outputs / inputs)
    return (0.2 if scale == "match-rms-adamw" else 1.0) * sqrt(max(outputs, inputs))


def _step(x: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    return torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
