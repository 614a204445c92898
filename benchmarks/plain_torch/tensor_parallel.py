"""Tensor parallelism by hand, as Megatron-LM does it (arXiv 1909.08053; with sequence parallelism arXiv 2205.05198).

A column-cut product gathers its input along the sequence, or takes it whole; backwards it gathers the input again
beside the product for its gradient, and sums that gradient up beside the product for the weight's. A row-cut product
sums its output up. Embedding, head and loss are cut over the vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from plain_torch.decoder import IGNORED, Products


@dataclass(frozen=True)
class Cut:
    """How a product's values are cut: among all ``ranks``, the sequence too outside of the products if ``sequence``."""

    rank: int
    ranks: int
    sequence: bool

    def products(self) -> Products:
        """What a decoder is made of."""
        return Products(
            column=partial(Product, cut=self, of=Column),
            row=partial(Product, cut=self, of=Row),
            embedding=partial(VocabularyEmbedding, cut=self),
            parts=self.ranks,
            part=self.rank,
        )

    def gather(self, x: Tensor) -> tuple[Tensor, dist.Work]:
        """All parts of a sequence, under way."""
        out = x.new_empty((len(x) * self.ranks, *x.shape[1:]))
        return out, dist.all_gather_single(out, x.contiguous(), async_op=True)

    def add_up(self, x: Tensor) -> tuple[Tensor, dist.Work]:
        """The sum over ranks, under way: all of it, or this rank's part of the sequence."""
        if not self.sequence:
            return x, dist.all_reduce(x, async_op=True)
        out = x.new_empty((len(x) // self.ranks, *x.shape[1:]))
        return out, dist.reduce_scatter_single(out, x, async_op=True)


class Product(nn.Module):
    """A matrix of which this rank holds a part."""

    def __init__(self, inputs: int, outputs: int, cut: Cut, of: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.weight, self.cut, self.of = nn.Parameter(torch.empty(outputs, inputs)), cut, of

    def forward(self, x: Tensor) -> Tensor:
        """x·Wᵀ."""
        return self.of.apply(x, self.weight, self.cut)


class Column(torch.autograd.Function):
    """Outputs are cut."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cut: Cut) -> Tensor:
        """On the whole sequence."""
        ctx.save_for_backward(x, weight)
        ctx.cut = cut
        if cut.sequence:
            x, gathering = cut.gather(x)
            gathering.wait()
        return functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """Exchanges run beside both products."""
        x, weight = ctx.saved_tensors
        gathering = None
        if ctx.cut.sequence:
            x, gathering = ctx.cut.gather(x)
        dx, summing = _after(gathering, ctx.cut, g @ weight)
        dw = g.flatten(0, 1).t() @ x.flatten(0, 1)
        summing.wait()
        return dx, dw, None


def _after(gathering: dist.Work | None, cut: Cut, dx: Tensor) -> tuple[Tensor, dist.Work]:
    if gathering is not None:
        gathering.wait()
    return cut.add_up(dx)


class Row(torch.autograd.Function):
    """Inputs are cut."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, cut: Cut) -> Tensor:
        """Summed up over ranks."""
        ctx.save_for_backward(x, weight)
        ctx.cut = cut
        y, summing = cut.add_up(functional.linear(x, weight))
        summing.wait()
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """On the gradient of the whole sequence."""
        x, weight = ctx.saved_tensors
        if ctx.cut.sequence:
            g, gathering = ctx.cut.gather(g)
            gathering.wait()
        return g @ weight, g.flatten(0, 1).t() @ x.flatten(0, 1), None


class VocabularyEmbedding(nn.Module):
    """A table of which this rank holds some rows."""

    def __init__(self, rows: int, width: int, cut: Cut) -> None:
        super().__init__()
        self.weight, self.cut = nn.Parameter(torch.empty(rows, width)), cut

    def forward(self, tokens: Tensor) -> Tensor:
        """Zeros for rows of other ranks, then the sum over ranks."""
        local = tokens - self.cut.rank * len(self.weight)
        outside = (local < 0) | (local >= len(self.weight))
        y = functional.embedding(local.masked_fill(outside, 0), self.weight)
        return _AddUp.apply(y.masked_fill(outside[..., None], 0), self.cut)


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut) -> Tensor:
        ctx.cut = cut
        y, summing = cut.add_up(x)
        summing.wait()
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        if ctx.cut.sequence:
            g, gathering = ctx.cut.gather(g)
            gathering.wait()
        return g, None


class CrossEntropy(torch.autograd.Function):
    """Σ −log p of logits whose vocabulary is cut: the maximum over ranks, then the sums that need it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, cut: Cut) -> Tensor:
        """Keeps the softmax."""
        width = logits.shape[-1]
        maximum = logits.amax(-1)
        dist.all_reduce(maximum, op=dist.ReduceOp.MAX)
        shifted = logits - maximum[..., None]
        column = labels - cut.rank * width
        outside = (column < 0) | (column >= width)
        column = column.masked_fill(outside, 0)
        target = shifted.gather(-1, column[..., None])[..., 0].masked_fill(outside, 0)
        softmax = shifted.exp_()
        sums = torch.stack((softmax.sum(-1), target))
        dist.all_reduce(sums)
        softmax /= sums[0, ..., None]
        counted = labels != IGNORED
        ctx.save_for_backward(softmax, column, ~outside, counted)
        return (sums[0].log() - sums[1]).masked_fill(~counted, 0).sum()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        """Softmax − one-hot."""
        softmax, column, here, counted = ctx.saved_tensors
        softmax.scatter_add_(-1, column[..., None], -here[..., None].to(softmax))
        return softmax.mul_((counted * g)[..., None]), None, None
