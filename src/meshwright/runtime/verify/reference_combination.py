"""Rules that combine replicas' gradients, written out for whole gradients in one process.

They share no code with the runtime's rules (``runtime/synchronisation/combine``): distances and subspaces are those of
whole vectors, not of their products.
"""

from collections.abc import Mapping, Sequence

import torch

from meshwright.plans.synchronisation.synchronisation import Synchronisation

ROUNDS = 10
LEAST_SINE = 1e-3
Tensors = Mapping[str, torch.Tensor]


def combined(said: Synchronisation, rows: Sequence[Tensors]) -> dict[str, torch.Tensor]:
    """Return the combination of the replicas' gradients; the mean of ``rows`` is that of the batch."""
    names = list(rows[0])
    matrix = torch.stack([torch.cat([row[name].flatten() for name in names]) for row in rows])
    flat = _by_rule(said, matrix)
    parts = flat.split([rows[0][name].numel() for name in names])
    return {name: part.view(rows[0][name].shape) for name, part in zip(names, parts, strict=True)}


def _by_rule(said: Synchronisation, matrix: torch.Tensor) -> torch.Tensor:
    combine = said.combine
    if combine == "median":
        return _middle(matrix)
    assert combine is not None
    assert not isinstance(combine, str)
    if combine.trimmed_mean is not None:
        return _trimmed(matrix, int(combine.trimmed_mean))
    if combine.krum is not None:
        return _krum(matrix, int(combine.krum))
    assert combine.flag is not None
    return _flag(matrix, int(combine.flag.rank), raw=combine.flag.average == "raw")


def _middle(matrix: torch.Tensor) -> torch.Tensor:
    half = len(matrix) // 2
    low, high = matrix.kthvalue(len(matrix) - half, 0).values, matrix.kthvalue(half + 1, 0).values
    return (low + high) / 2


def _trimmed(matrix: torch.Tensor, cut: int) -> torch.Tensor:
    """Return the mean of what is left after each element's extremes were taken out, one after the other."""
    left = matrix.clone()
    for _ in range(cut):
        for extreme in (torch.argmin, torch.argmax):
            out = extreme(left, 0, keepdim=True)
            keep = torch.ones_like(left, dtype=torch.bool).scatter_(0, out, value=False)
            left = left.T[keep.T].view(left.shape[1], -1).T
    return left.mean(0)


def _krum(matrix: torch.Tensor, wrong: int) -> torch.Tensor:
    scores = []
    for one, row in enumerate(matrix):
        far = sorted(float((row - other).square().sum()) for n, other in enumerate(matrix) if n != one)
        scores.append(sum(far[: len(matrix) - wrong - 2]))
    return matrix[scores.index(min(scores))]


def _flag(matrix: torch.Tensor, rank: int, *, raw: bool) -> torch.Tensor:
    columns = (matrix / matrix.norm(dim=1, keepdim=True)).T
    weights = torch.ones(len(matrix), dtype=matrix.dtype)
    for _ in range(ROUNDS + 1):
        basis = torch.linalg.svd(columns * weights.sqrt(), full_matrices=False).U[:, :rank]
        sines = (1 - (basis.T @ columns).square().sum(0)).clamp(min=0).sqrt()
        weights = 1 / sines.clamp(min=LEAST_SINE)
    alike = matrix if raw else columns.T * matrix.norm(dim=1).quantile(0.5)
    return basis @ (basis.T @ alike.mean(0))
