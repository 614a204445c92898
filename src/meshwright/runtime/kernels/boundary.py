"""The edges of the tensor region, and the residual stream: kernels without parameters."""

from dataclasses import dataclass

import torch

from meshwright.model.attention import ATTENTION_RESIDUAL
from meshwright.model.numerics import Mixing
from meshwright.model.operators import EnterTensor, LeaveTensor, Residual
from meshwright.program.items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class BoundaryKernel:
    """Nothing but its collectives: gather or scatter of the sequence, sums of what tp ranks computed in part."""

    op: EnterTensor | LeaveTensor
    setting: Setting

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Nothing by itself."""
        return x

    def again(self, visit: Visit) -> torch.Tensor:
        """An edge keeps nothing that a row could begin with."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input."""

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Nothing by itself."""
        return g

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: Value, visit: Visit) -> Exchange:
        """Over tp, along the sequence; a pair of values goes together."""
        if not isinstance(x, tuple):
            return (yield from tensor_exchange(self.setting.communicator, item, x))
        both = yield from tensor_exchange(self.setting.communicator, item, torch.cat(x, -1))
        return both.split([part.shape[-1] for part in x], -1)


@dataclass(frozen=True)
class ResidualKernel:
    """A branch added to the stream."""

    op: Residual
    setting: Setting

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """The branch and the stream, each times the model's factor."""
        branch, stream = x
        return _times(stream, self._mixing.stream) + _times(branch, self._mixing.part)

    def again(self, visit: Visit) -> torch.Tensor:
        """A residual keeps nothing that a row could begin with."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input."""

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """The gradients of branch and stream."""
        return _times(g, self._mixing.part), _times(g, self._mixing.stream)

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """A residual exchanges nothing."""
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
