"""RMSNorm of a gated value, with the mean over the heads of all tp ranks.

With u = x·silu(g), n = u/√(mean u² + ε) and h = dy·w: du = (h − n·mean(h·n))/√(mean u² + ε), dx = du·silu(g),
dg = du·x·silu′(g) and dw = Σ dy·n. Statistics and u are in single precision at least.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from meshwright.program.local_shape import STATISTIC_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Value
from meshwright.runtime.kernels.linear_attention.linear_attention import GatedNormKernel


@dataclass(frozen=True)
class GatedInputNormKernel(GatedNormKernel):
    """Norm of a gated value: (x, gate) → w·u / √(mean u² + ε) with u = x·silu(gate)."""

    @property
    def epsilon(self) -> float:
        """ε of the statistics."""
        return self.setting.architecture.norm_epsilon

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the norm of (sequence, batch, width / tp); with tp, ``x`` includes the rows' sums of squares."""
        value, gate, *summed = x
        gated = self._gated(value, gate)
        squares = summed[0] if summed else self._squares(gated)
        if visit.keep.inputs:
            visit.kept |= {"input": value, "gate": gate}
        if visit.keep.inner:
            visit.kept["squares"] = squares
        return (gated * self._scale(squares)).to(value) * visit.unit(self.name).view(self.name)

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradients of value and gate, and add that of w.

        With tp, ``g`` includes the rows' sums of gradient · value.
        """
        g, *summed = g if isinstance(g, tuple) else (g,)
        through, normalised = self._parts(g, visit)
        products = summed[0] if summed else self._products(g, visit)
        squares, value, gate = (visit.kept.pop(name) for name in ("squares", "input", "gate"))
        if not self.op.frozen:
            with visit.unit(self.name).gradients.adding(self.name) as total:
                total.add_((g.to(squares) * normalised).flatten(0, 1).sum(0))
        mean = (products / self.op.width)[..., None]
        of_gated = (through - normalised * mean) * self._scale(squares)
        wide = gate.to(squares)
        of_gate = torch.ops.aten.silu_backward(of_gated * value.to(squares), wide.contiguous())
        return (of_gated * functional.silu(wide)).to(value), of_gate.to(value)

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Sum the terms of each row's mean over tp."""
        sums = self._products(x, visit) if item.phase == "I" else self._squares(self._gated(*x))
        yield self.setting.communicator.start(item, sums, STATISTIC_BYTES)
        return (x, sums) if item.phase == "I" else (*x, sums)

    def _gated(self, value: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Return u."""
        wide = self.setting.precision.statistic
        return value.to(wide) * functional.silu(gate.to(wide))

    def _parts(self, g: torch.Tensor, visit: OperatorCall) -> tuple[torch.Tensor, torch.Tensor]:
        """Return h and n of this rank's heads."""
        squares, weight = visit.kept["squares"], visit.unit(self.name).view(self.name)
        gated = self._gated(visit.kept["input"], visit.kept["gate"])
        return g.to(squares) * weight, gated * self._scale(squares)
