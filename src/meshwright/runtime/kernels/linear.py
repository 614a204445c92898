"""Linear layer y = x·Wᵀ + b with a deferred weight gradient: I returns the input's gradient, W adds dYᵀ·x later.

Several matrices with one input (queries, keys and values; gate and up) are adjacent in their unit and form one product.
A projection that begins a stream concatenates several results. The bias of a row-parallel matrix is added once, by the
first tp rank, before the partial sums are reduced. A frozen layer needs its input only to be recomputed from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from meshwright.model.operators.operator_types import Linear
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value, tensor_exchange
from meshwright.workload.base_types import QUANTISED


@dataclass(frozen=True)
class LinearKernel:
    """One or several matrices with one input."""

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

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return x·Wᵀ + b: (…, inputs) → (…, outputs)."""
        if visit.keep.inputs:
            visit.kept["input"] = x if visit.source is None else visit.source
        y = self._product(x, visit)
        if self.biases and (self.op.split != "row" or self.setting.tp_rank == 0):
            y += torch.cat([visit.unit(name).view(name) for name in self.biases])
        return y

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Recompute the result from the saved input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: OperatorCall) -> None:
        """Save the recomputed input; a frozen layer has no use for it."""
        if not self.op.frozen:
            visit.kept["input"] = x

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return dY·W and save dY for W; add the biases' gradients."""
        if self.op.frozen:
            visit.kept.pop("input", None)
            return self._input_product(g, visit)
        visit.kept["output_gradient"] = g
        if self.biases and (self.op.split != "row" or self.setting.counts_whole):
            parts = g.flatten(0, 1).sum(0).split([self._size(name, visit) for name in self.biases])
            for name, part in zip(self.biases, parts, strict=True):
                with visit.unit(name).gradients.adding(name) as total:
                    total.add_(part)
        return g @ self.table(visit)

    def _product(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return x·Wᵀ; quantised matrices are opened one by one."""
        tables = self._one_by_one(visit)
        if tables is not None:
            return torch.cat([functional.linear(x.to(table), table) for table in tables], -1)
        table = self.table(visit)
        return functional.linear(x.to(table), table)

    def _input_product(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return dY·W of frozen matrices."""
        tables = self._one_by_one(visit)
        if tables is None:
            return g @ self.table(visit)
        parts = g.split([self._size(name, visit) for name in self.matrices], -1)
        found = parts[0] @ next(tables)
        for part, table in zip(parts[1:], tables, strict=True):
            found += part @ table
        return found

    def _one_by_one(self, visit: OperatorCall) -> Iterator[torch.Tensor] | None:
        """Return the matrices in turn where several are quantised; None if they are one table."""
        quantised = any(p.storage in QUANTISED for p in self.op.parameters)
        names = self.matrices if quantised and len(self.matrices) > 1 else None
        return (visit.unit(name).view(name) for name in names) if names else None

    def table(self, visit: OperatorCall) -> torch.Tensor:
        """Return all matrices as one: (outputs, inputs)."""
        rows: torch.Tensor = visit.unit(self.matrices[0]).rows(self.matrices)
        return rows

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add dYᵀ·x to the weights' gradient."""
        kept = visit.kept
        x = kept.pop("gathered" if "gathered" in kept else "input").flatten(0, 1)
        g = kept.pop("output_gradient").flatten(0, 1)
        visit.unit(self.matrices[0]).gradients.add_product(self.matrices, g, x.to(g))

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Gather the saved input for W; return ``x`` unchanged."""
        visit.kept["gathered"] = yield from tensor_exchange(
            self.setting.communicator, item, visit.kept["input"]
        )
        del visit.kept["input"]
        return x

    def _size(self, name: str, visit: OperatorCall) -> int:
        size: int = visit.unit(name).shape(name)[0]
        return size


@dataclass(frozen=True)
class JoiningKernel(LinearKernel):
    """One matrix on the concatenation of several results."""

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the product with the concatenated parts, or with their saved concatenation."""
        return super().forward(_joined(x), visit)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save the recomputed parts, concatenated."""
        super().restore(_joined(x), visit)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> Value:
        """Return a gradient for each of the parts."""
        return super().input_gradient(g, visit).chunk(len(self.op.reads), -1)


def _joined(x: Value) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.cat(x, -1)
