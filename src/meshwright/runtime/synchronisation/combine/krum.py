"""Krum: the row next to its neighbours (Blanchard et al., arXiv 1703.02757).

The score of a row is the sum of its squared distances to the n − f − 2 nearest other rows. The row with the lowest
score is the result, the first one of equals.
"""

import torch


def krum(options: float, products: torch.Tensor) -> torch.Tensor:
    """Return 1 for the row that is chosen and 0 for all others; ``options`` is f, the rows that may be wrong."""
    squares, rows = products.diagonal(), len(products)
    distances = squares[:, None] + squares[None, :] - 2 * products
    distances = torch.nan_to_num(distances, nan=torch.inf, posinf=torch.inf)
    distances.fill_diagonal_(torch.inf)
    scores = distances.sort(1).values[:, : rows - int(options) - 2].sum(1)
    weights = torch.zeros_like(squares)
    weights[int(scores.argmin())] = 1
    return weights
