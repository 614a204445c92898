"""Send the centroid of each bucket of similar rows to its expert; add what each row differs by to the result.

With centroid c, size n and g the gradient of a row's result, weighed, buckets being constant:

=========  ====================================================================================================
forward    y = E(c) + (x − c)
backward   to the expert g_b = Σ g over the bucket, back h_b, the gradient of c; to the row g + (h_b − g_b)/n
=========  ====================================================================================================

Tokens and centroids are held from the dispatch to the combine, and results of rows as without buckets.
"""

from dataclasses import dataclass

import torch

from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.moe.token_buckets import TokenBuckets
from meshwright.runtime.kernels.token_dispatch.per_expert import PerExpertDispatch


@dataclass
class BucketedDispatch(PerExpertDispatch):
    """Dispatch of centroids, whose counts are those of the routes; ``held`` are tensors that a later item needs."""

    held: tuple[torch.Tensor, torch.Tensor] | None = None

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return one centroid for each bucket, in the order of experts."""
        centroids = self._buckets.means(super().leave(tokens), self.statistic)
        self.held = tokens, centroids
        return centroids

    def weighed(self, come: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return Σ weight · (result of the centroid + difference of the row)."""
        tokens, centroids = self._take()
        rows = super().leave(tokens) + (come - centroids)[self._buckets.of_rows]
        return super().weighed(rows, visit)

    def unweighed(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the buckets' sums of weight · gradient."""
        rows = super().unweighed(g, visit)
        sums = self._buckets.sums(rows, self.statistic).to(rows.dtype)
        self.held = rows, sums
        return sums

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """Return the sums by token of each row's own gradient and its share of its bucket's."""
        rows, sums = self._take()
        shares = (come - sums) / self._buckets.sizes[:, None]
        return super().arrive(rows + shares.to(rows.dtype)[self._buckets.of_rows])

    @property
    def _buckets(self) -> TokenBuckets:
        assert self.routes.buckets is not None
        return self.routes.buckets

    def _take(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.held is not None, "nothing was dispatched"
        held, self.held = self.held, None
        return held
