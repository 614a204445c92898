"""Trimmed mean: the mean of each element without the f smallest and the f largest values (Yin et al., 1803.01498)."""

import torch


def trimmed_mean(options: float, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean of what is left of each element; ``options`` is f, the values that are cut at each end."""
    cut = int(options)
    if not cut:
        return rows.mean(0)
    return rows.sort(0).values[cut : len(rows) - cut].mean(0)
