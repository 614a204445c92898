"""The edges of the tensor-parallel region, and the residual stream: kernels without parameters."""

from dataclasses import dataclass

import torch

from meshwright.model.numerics import Mixing
from meshwright.model.operators.attention import ATTENTION_RESIDUAL
from meshwright.model.operators.operator_types import EnterTensor, LeaveTensor, Residual
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange


@dataclass(frozen=True)
class BoundaryKernel:
    """An edge of the tensor-parallel region: only collectives, no compute.

    It gathers or scatters the sequence, or sums partial results.
    """

    op: EnterTensor | LeaveTensor
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``x``: an edge computes nothing."""
        return x

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: an edge saves nothing that recomputation could begin with."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: an edge saves no input."""

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``g``: an edge computes nothing."""
        return g

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Run a collective over tp along the sequence; a pair of values is exchanged together."""
        if not isinstance(x, tuple):
            return (yield from tensor_exchange(self.setting.communicator, item, x))
        both = yield from tensor_exchange(self.setting.communicator, item, torch.cat(x, -1))
        return both.split([part.shape[-1] for part in x], -1)


@dataclass(frozen=True)
class ResidualKernel:
    """Residual addition: branch + stream."""

    op: Residual
    setting: Setting

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return branch + stream, each times the model's factor."""
        branch, stream = x
        return _times(stream, self._mixing.stream) + _times(branch, self._mixing.part)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: a residual saves nothing that recomputation could begin with."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: a residual saves no input."""

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> Value:
        """Return the gradients of branch and stream."""
        return _times(g, self._mixing.part), _times(g, self._mixing.stream)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: a residual has no collectives."""
        raise AssertionError(item)
        yield

    @property
    def _mixing(self) -> Mixing:
        numerics = self.setting.numerics
        if self.op.name != ATTENTION_RESIDUAL:
            return numerics.feedforward_mixing
        return numerics.mixing_of_attention(self.setting.decoder_layer)


def _times(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x if factor == 1 else x * factor
