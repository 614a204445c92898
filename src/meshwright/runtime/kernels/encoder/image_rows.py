"""Bring the patches of images into the text: their embedding, neighbours merged to rows, rows put before the text."""

from dataclasses import dataclass

import torch

from meshwright.model.operators.operator_types import JoinImages, MergePatches, PlaceImages, SharedValue
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.linear import LinearKernel
from meshwright.workload.images import Images


@dataclass(frozen=True)
class PatchEmbeddingKernel(LinearKernel):
    """Product of a rank's part of the patches with one matrix."""

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the embedded patches of the micro-batch, ignoring ``x``: (patches, batch, elements) → hidden."""
        patches = visit.batch.encoder
        assert patches is not None
        if self.setting.sequence_parallel:
            patches = patches.chunk(self.setting.tp)[self.setting.tp_rank]
        return super().forward(patches.to(self.setting.precision.compute), visit)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> None:  # type: ignore[override]
        """Save the gradient for W; patches have none."""
        visit.kept["output_gradient"] = g


@dataclass(frozen=True)
class RowKernel:
    """A kernel that only moves rows: it has no parameters, no collectives, and is never run again."""

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: rows are not moved again."""
        raise AssertionError(self)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: no input is saved."""

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: there are no collectives."""
        raise AssertionError(item)
        yield


@dataclass(frozen=True)
class MergeKernel(RowKernel):
    """Neighbouring patches side by side: (patches, batch, width) → (patches / merged, batch, merged · width)."""

    op: MergePatches
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return rows of merged patches."""
        return x.unflatten(0, (-1, self.op.merged)).transpose(1, 2).flatten(2)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the gradients of the patches."""
        return g.unflatten(2, (self.op.merged, -1)).transpose(1, 2).flatten(0, 1)


@dataclass(frozen=True)
class PlaceKernel(RowKernel):
    """Rows of images at their positions, in raster order, zeros elsewhere: (rows, …) → (sequence, …)."""

    op: PlaceImages
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return a whole sequence with the rows of its images."""
        placed = x.new_zeros((int(self.setting.shape.seq_len), *x.shape[1:]))
        return placed.index_copy_(0, self._positions(x.device), x)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the gradients of the rows."""
        return g.index_select(0, self._positions(g.device))

    def _positions(self, device: torch.device) -> torch.Tensor:
        def made() -> torch.Tensor:
            rows = _images(self.setting).window_order(self.op.merge, self.op.side)
            return torch.from_numpy(rows).to(device)

        return self.setting.tables.get("positions of image rows", made)


@dataclass(frozen=True)
class JoinKernel(RowKernel):
    """The rows of images, and behind them those of text, in this rank's part of the sequence."""

    op: JoinImages
    setting: Setting

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return image rows + text rows, the embeddings at image positions left out."""
        images, text = x
        return images + text * self._is_text(text)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> Value:
        """Return the gradients of images and text."""
        return g, g * self._is_text(g)

    def _is_text(self, x: torch.Tensor) -> torch.Tensor:
        first = self.setting.tp_rank * len(x) if self.setting.sequence_parallel else 0
        rows = _images(self.setting).rows(self.op.merge)
        own = self.setting.positions[first : first + len(x)]
        return (own >= rows).to(x)[:, None, None]


@dataclass(frozen=True)
class SharedValueKernel(RowKernel):
    """A value that the stage keeps for later blocks."""

    op: SharedValue
    setting: Setting

    def forward(self, x: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``x``, saved."""
        if visit.keep.inner:
            visit.kept["value"] = x
        return x

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return ``g``."""
        visit.kept.pop("value", None)
        return g


def _images(setting: Setting) -> Images:
    images = setting.shape.encoder.images
    assert images is not None
    return images
