"""y = x·Wᵀ + b with the weight gradient put off: I returns the input's gradient, W adds dYᵀ·x later.

Several matrices on one input (queries, keys and values; gate and up) lie next to each other in their unit and are one
product. A projection that begins a stream works on several results side by side. A bias of a row-parallel matrix is
added once, by the first tp rank, before the partial sums are added up.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from meshwright.model.operators import Linear
from meshwright.program.items import Collective
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.runtime.unit import Unit
from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class LinearKernel:
    """One or several matrices on one input."""

    op: Linear
    setting: Setting

    @cached_property
    def matrices(self) -> tuple[str, ...]:
        """Names of the weights."""
        return self.setting.names_of(self.op, (2,))

    @cached_property
    def biases(self) -> tuple[str, ...]:
        """Names of the biases."""
        return self.setting.names_of(self.op, (1,))

    def forward(self, x: torch.Tensor, visit: Visit) -> torch.Tensor:
        """(…, inputs) → (…, outputs)."""
        if visit.keep.inputs:
            visit.kept["input"] = x if visit.source is None else visit.source
        table = self.table(visit)
        y = functional.linear(x.to(table), table)
        if self.biases and (self.op.split != "row" or self.setting.tp_rank == 0):
            y += torch.cat([visit.unit(name).view(name) for name in self.biases])
        return y

    def again(self, visit: Visit) -> torch.Tensor:
        """On the kept input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: Visit) -> None:
        """Keep it now."""
        visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """dY·W; dY stays until W."""
        visit.kept["output_gradient"] = g
        if self.biases and (self.op.split != "row" or self.setting.counts_whole):
            parts = g.flatten(0, 1).sum(0).split([self._size(name, visit) for name in self.biases])
            for name, part in zip(self.biases, parts, strict=True):
                visit.unit(name).gradient_of(name).add_(part)
        return g @ self.table(visit)

    def table(self, visit: Visit) -> torch.Tensor:
        """All matrices as one: (outputs, inputs)."""
        return self._unit(visit).rows(self.matrices)

    def weight_gradient(self, visit: Visit) -> None:
        """Add dYᵀ·x."""
        kept = visit.kept
        x = kept.pop("gathered" if "gathered" in kept else "input").flatten(0, 1)
        g = kept.pop("output_gradient").flatten(0, 1)
        self._unit(visit).add_product(self.matrices, g, x.to(g))

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """Bring the kept input together for W; ``x`` is left as it is."""
        visit.kept["gathered"] = yield from tensor_exchange(
            self.setting.communicator, item, visit.kept["input"]
        )
        del visit.kept["input"]
        return x

    def _unit(self, visit: Visit) -> Unit:
        return visit.unit(self.matrices[0])

    def _size(self, name: str, visit: Visit) -> int:
        return visit.unit(name).gradient_of(name).numel()


@dataclass(frozen=True)
class JoiningKernel(LinearKernel):
    """One matrix on several results side by side."""

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """Of the parts, or of what was kept of them, joined."""
        return super().forward(_joined(x), visit)

    def restore(self, x: Value, visit: Visit) -> None:
        """Keep them now."""
        super().restore(_joined(x), visit)

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """A gradient for each of the parts."""
        return super().input_gradient(g, visit).chunk(len(self.op.reads), -1)


def _joined(x: Value) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.cat(x, -1)
