"""Flag: the mean, projected to the r-dim subspace that lies next to most rows (arXiv 2302.05865).

With ĝᵢ = gᵢ/‖gᵢ‖ the subspace's orthonormal basis Y minimises Σ √(1 − ‖Yᵀ·ĝᵢ‖²), the sum of the sines of its angles to
the rows, by weighted least squares: from weights 1, Y is the first r left singular vectors of the columns √wᵢ·ĝᵢ, then
wᵢ = 1/max(√(1 − ‖Yᵀ·ĝᵢ‖²), ε). The result is Y·Yᵀ·ḡ with the mean ḡ of the raw rows, so at full rank it is the mean.

A projection keeps what lies in the subspace: rows that are −10 times an honest one turn the mean of the raw rows round,
and so does a long row that Y includes. With ``average: normalised`` ḡ is the mean of m·ĝᵢ, m the median norm, in which
every row weighs the same; at full rank this is not the mean.

Y lies in the span of the rows, so all of this needs only their products. Let N be the diagonal of norms, D that of
weights, G the products and K = √D·N⁻¹·G·N⁻¹·√D = V·Λ·Vᵀ, of which r pairs are kept. Y is the normalised rows times
√D·V·Λ^(−½), and the result the rows weighted by N⁻¹·√D·V·Λ⁻¹·Vᵀ·√D·N⁻¹·G·1/n.

Assumed: ``ROUNDS`` and ``LEAST_SINE`` (ε); the paper's term of pairs of rows is left out.
"""

import torch

from meshwright.plans.synchronisation.combination import RAW, Flag

ROUNDS = 10
"""Rounds of weighted least squares."""
LEAST_SINE = 1e-3
RELATIVE = 1e-12
"""Singular values, squared, below this share of the largest are rounding: they carry no direction."""


def flag(options: Flag, products: torch.Tensor) -> torch.Tensor:
    """Return the weights of the rows."""
    norms = products.diagonal().sqrt().clamp(min=torch.finfo(products.dtype).tiny)
    cosines, rank = products / norms[:, None] / norms[None, :], int(options.rank)
    weights = torch.ones_like(norms)
    for _ in range(ROUNDS):
        basis = _basis(cosines, weights, rank)
        sines = (1 - (cosines @ basis).square().sum(1)).clamp(min=0).sqrt()
        weights = 1 / sines.clamp(min=LEAST_SINE)
    basis = _basis(cosines, weights, rank)
    rows = norms if options.average == RAW else norms.quantile(0.5).expand_as(norms)
    mean = cosines @ rows / len(products)
    return (basis @ (basis.T @ mean)) / norms


def _basis(cosines: torch.Tensor, weights: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the basis as combinations of normalised rows: (row, dim)."""
    root = weights.sqrt()
    values, vectors = torch.linalg.eigh(root[:, None] * cosines * root[None, :])
    kept = values[-rank:] > RELATIVE * values[-1]
    values, vectors = values[-rank:][kept], vectors[:, -rank:][:, kept]
    return root[:, None] * vectors / values.sqrt()
