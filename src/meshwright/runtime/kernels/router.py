"""A router's projection: logits of all experts, at least in single precision where the model says so."""

from dataclasses import dataclass

import torch

from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.runtime.visit import Visit

ROUTER = "router"


@dataclass(frozen=True)
class RouterKernel(LinearKernel):
    """(…, hidden) → (…, experts)."""

    def table(self, visit: Visit) -> torch.Tensor:
        """In the dtype of the product."""
        return super().table(visit).to(self._dtype)

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """As wide as the input is."""
        return super().input_gradient(g.to(self._dtype), visit).to(self.setting.precision.compute)

    @property
    def _dtype(self) -> torch.dtype:
        routing, precision = self.setting.numerics.routing, self.setting.precision
        assert routing is not None
        return precision.statistic if routing.projected_in_fp32 else precision.compute
