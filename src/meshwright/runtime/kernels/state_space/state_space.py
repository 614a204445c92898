"""Mamba-2's filter and recurrence of the heads of one rank.

The gate, x and Δ of a rank's heads are parts of one buffer that the projection wrote; B and C come by themselves, whole
on every rank. Both are saved unchanged, because repeating the filter costs less than saving its result: the gradient
computes the output again and lets autograd differentiate it, within one call. The gate goes on to the norm.
Computation is in single precision at least.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from meshwright.model.operators.operator_types import StateSpace
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.state_space.state_space_recurrence import Recurrence, causal_filter


@dataclass(frozen=True)
class StateSpaceKernel:
    """Filter and recurrence: (gate, x and Δ in one buffer; B and C) → (output, gate)."""

    op: StateSpace
    setting: Setting

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Full names of the parameters, by their last words: ``x_conv.weight``, ``A_log`` …."""
        return {p.name.removeprefix("mamba."): self.setting.named(p) for p in self.op.parameters}

    @cached_property
    def widths(self) -> tuple[int, int, int]:
        """Widths of gate, x and Δ on this rank."""
        tp = self.setting.tp
        return self.op.width // tp, self.op.width // tp, self.op.heads // tp

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Return output and gate, (sequence, batch, width / tp) each."""
        fused, shared = x
        if visit.keep.inputs:
            visit.kept |= {"input": fused, "shared": shared}
        gate, *_ = fused.split(self.widths, -1)
        with torch.no_grad():
            return self._output(fused, shared, self._parameters(visit)).to(fused), gate

    def again(self, visit: OperatorCall) -> Value:
        """Raise AssertionError: no recomputed segment begins here."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save the recomputed inputs."""
        visit.kept |= dict(zip(("input", "shared"), x, strict=True))

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradients of both inputs, and add those of the parameters."""
        of_out, of_gate = g
        saved = [visit.kept.pop(name) for name in ("input", "shared")]
        with torch.enable_grad():
            fused, shared = (tensor.detach().requires_grad_() for tensor in saved)
            parameters = self._parameters(visit)
            learns = {} if self.op.frozen else {k: p.requires_grad_() for k, p in parameters.items()}
            output = self._output(fused, shared, parameters | learns)
            inputs = (fused, shared, *learns.values())
            of_fused, of_shared, *found = torch.autograd.grad(output, inputs, of_out.to(output))
        of_fused[..., : self.widths[0]] += of_gate
        for key, gradient in zip(learns, found, strict=True):
            name = self.names[key]
            with visit.unit(name).gradients.adding(name) as total:
                total.add_(gradient)
        return of_fused, of_shared

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: the parameters' gradients are added with the inputs'."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: nothing is exchanged."""
        raise AssertionError(item)
        yield

    def _parameters(self, visit: OperatorCall) -> dict[str, torch.Tensor]:
        """Return this rank's parameters by their last words, in single precision at least."""
        wide = self.setting.precision.statistic
        return {key: visit.unit(name).view(name).detach().to(wide) for key, name in self.names.items()}

    def _output(
        self, fused: torch.Tensor, shared: torch.Tensor, parameters: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the output of all positions: (sequence, batch, width / tp)."""
        wide = self.setting.precision.statistic
        _, x, dt = (part.to(wide) for part in fused.split(self.widths, -1))
        filtered = (
            causal_filter(part, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))
            for name, part in (("x_conv", x), ("bc_conv", shared.to(wide)))
        )
        x, shared = filtered
        x = x.unflatten(-1, (-1, self.op.head_dim))
        b, c = shared.chunk(2, -1)
        dt = functional.softplus(dt + parameters["dt_bias"])
        decay = -dt * torch.exp(parameters["A_log"])
        y = Recurrence(x * dt[..., None], decay, b, c).output(self.op.block)
        return (y + x * parameters["D"][:, None]).flatten(2)
