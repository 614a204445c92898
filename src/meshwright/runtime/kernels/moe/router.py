"""A router's projection to the logits of all experts, in single precision at least if the model requires it."""

from dataclasses import dataclass

import torch

from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.linear import LinearKernel

ROUTER = "router"


@dataclass(frozen=True)
class RouterKernel(LinearKernel):
    """Router projection: (…, hidden) → (…, experts)."""

    def table(self, visit: OperatorCall) -> torch.Tensor:
        """Return the matrix in the dtype of the product."""
        return super().table(visit).to(self._dtype)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the input's gradient in the compute dtype."""
        return super().input_gradient(g.to(self._dtype), visit).to(self.setting.precision.compute)

    @property
    def _dtype(self) -> torch.dtype:
        routing, precision = self.setting.numerics.routing, self.setting.precision
        assert routing is not None
        return precision.statistic if routing.projected_in_fp32 else precision.compute
