"""Buckets of similar rows on their way to experts, by cross-polytope hashing.

The hashing is that of ``program/synchronisation/token_hashing.py``.

Rows are a rank's for one layer and micro-batch, in the order of experts. Buckets are in the order of their experts, and
in that of their codes for one expert. Means and sums add up the rows of a bucket in order, so that they are the same to
the bit whatever the device's parallelism.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.program.synchronisation.token_hashing import TokenHashing
from meshwright.runtime.synchronisation.draw_key import seeded


@dataclass(frozen=True)
class TokenBuckets:
    """The bucket of each row, ``of_rows``, the rows of each, ``sizes``, and the buckets of each expert, ``counts``."""

    of_rows: torch.Tensor
    sizes: torch.Tensor
    counts: torch.Tensor

    @cached_property
    def _order(self) -> torch.Tensor:
        """The rows, sorted by bucket."""
        return self.of_rows.argsort(stable=True)

    def sums(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the sums of buckets: (rows, width) → (buckets, width), in ``dtype``."""
        ordered = rows[self._order].to(dtype)
        return torch.segment_reduce(ordered, "sum", lengths=self.sizes, axis=0, unsafe=True)

    def means(self, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the centroids: (rows, width) → (buckets, width), summed in ``dtype``."""
        return (self.sums(rows, dtype) / self.sizes[:, None]).to(rows.dtype)


@dataclass(frozen=True)
class Bucketing:
    """The hashing of a layer's tokens of width ``hidden`` for so many ``experts``, on a device in a dtype."""

    hashing: TokenHashing
    seed: int
    layer: int
    hidden: int
    experts: int
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def _matrices(self) -> torch.Tensor:
        """The random matrices of the layer's hashes."""
        found = projections(self.hashing, self.seed, self.layer, self.hidden)
        return found.to(self.device, self.dtype)

    def buckets(self, tokens: torch.Tensor, places: torch.Tensor, order: torch.Tensor) -> TokenBuckets:
        """Return the buckets of tokens, (tokens, hidden), at ``places`` of experts, whose rows are in ``order``."""
        codes = hash_codes(tokens, self._matrices, self.hashing.hashes)
        return token_buckets(codes, places, order, self.experts)


def projections(hashing: TokenHashing, seed: int, layer: int, hidden: int) -> torch.Tensor:
    """Return the random matrices of a layer's hashes, (hidden, hashes · width) in fp64, equal on all ranks."""
    draw = seeded(torch.device("cpu"), seed, layer, "token hashing")
    return torch.randn((hidden, hashing.hashes * hashing.width), generator=draw, dtype=torch.float64)


def hash_codes(tokens: torch.Tensor, matrices: torch.Tensor, hashes: int) -> torch.Tensor:
    """Return the codes of tokens, (tokens, hidden) → (tokens, hashes): dim and sign of the largest magnitude."""
    values = (tokens @ matrices).unflatten(-1, (hashes, -1))
    return torch.cat([values, -values], -1).argmax(-1)


def token_buckets(
    codes: torch.Tensor, places: torch.Tensor, order: torch.Tensor, experts: int
) -> TokenBuckets:
    """Return the buckets of (tokens, chosen) ``places`` of experts, whose rows are sent in ``order``."""
    keys = torch.cat([places.flatten()[order, None], codes[order // places.shape[1]]], 1)
    found, of_rows, sizes = keys.unique(dim=0, return_inverse=True, return_counts=True)
    return TokenBuckets(of_rows, sizes, torch.bincount(found[:, 0], minlength=experts))
