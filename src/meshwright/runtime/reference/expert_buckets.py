"""Replace the tokens of an expert by the centroids of their buckets (LSH-MoE, arXiv 2411.08446).

A token's code for one hash is the largest of ±(x·R): cross-polytope hashing. Gradients flow through centroids, which
are means; the assignment to buckets is constant.

Sizes: B sequences, L positions, D hidden, H hashes, W dims of a hash, T tokens that chose an expert.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bucketed:
    """The random matrices of each layer's hashes, (D, H, W), and the rank's micro-batch of each token: (B, L)."""

    matrices: Mapping[str, Tensor]
    scopes: Tensor

    def centroids(self, unit: str, x_BLD: Tensor, chose_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Return the centroid of each token that chose an expert, and whether it is the first of its bucket.

        Other tokens are returned as they are.
        """
        x_TD = x_BLD[chose_BL]
        bucket_T, count = self._buckets(unit, x_TD.detach(), self.scopes[chose_BL])
        sums_ND = x_TD.new_zeros((count, x_TD.shape[1])).index_add(0, bucket_T, x_TD)
        sizes_N = torch.bincount(bucket_T, minlength=count)
        means_ND = sums_ND / sizes_N[:, None]
        centroids_BLD = x_BLD.masked_scatter(chose_BL[..., None], means_ND[bucket_T])
        first_T = torch.zeros_like(bucket_T, dtype=torch.bool)
        seen: set[int] = set()
        for token, bucket in enumerate(bucket_T.tolist()):
            first_T[token] = bucket not in seen
            seen.add(bucket)
        return centroids_BLD, torch.zeros_like(chose_BL).masked_scatter(chose_BL, first_T)

    def _buckets(self, unit: str, x_TD: Tensor, scopes_T: Tensor) -> tuple[Tensor, int]:
        """Return the number of each token's bucket, and how many there are."""
        values_THW = torch.einsum("td,dhw->thw", x_TD, self.matrices[unit].to(x_TD))
        largest_TH = values_THW.abs().argmax(-1)
        negative_TH = values_THW.gather(-1, largest_TH[..., None]).squeeze(-1) < 0
        numbers: dict[tuple[int, ...], int] = {}
        keys = zip(scopes_T.tolist(), largest_TH.tolist(), negative_TH.tolist(), strict=True)
        found = [numbers.setdefault((scope, *dims, *signs), len(numbers)) for scope, dims, signs in keys]
        return torch.tensor(found, dtype=torch.long), len(numbers)
