"""Permutations and counts that carry a micro-batch's rows to their experts and back.

A rank sorts its rows by expert, which is also the order of the ranks that hold them, because ep cuts experts evenly.
The form of dispatch (``token_dispatch/``) moves them over ep. If etp cuts the experts' widths, all ranks of an etp
group need all rows of the group: they are gathered, padded to the longest part. Arrived rows are sorted by expert.
Results return the same way: sums over etp, the exchange over ep, the order of the tokens.

With an expert capacity some choices are not sent, and some rows belong to no token. With hashing one row is sent for
each bucket of similar ones.

Before that the ranks exchange how many rows they have for each expert: few numbers, which the Program does not count.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.moe.token_buckets import TokenBuckets

ETP = ("etp",)


class Place(NamedTuple):
    """An expert rank's indices along etp and ep."""

    etp: int
    ep: int


@dataclass
class TokenPermutation:
    """The router's choices for a micro-batch, and the order in which its rows are sent.

    ``experts`` of each token, their ``places`` in the order of all ep ranks and their ``weights`` are (tokens, chosen);
    ``logits`` are what they were computed from.

    ``order`` lists the tokens · chosen rows, numbered token by token, in the order of experts; with a ``capacity`` not
    all of them occur, and the number after the last one stands for a row of zeros. ``counts`` are rows by etp rank, ep
    rank and expert, on the host; ``here`` is this rank's place among them. ``weights_gradient`` is set in the backward
    pass; ``choices`` are those of all tokens of each scope of a balancing loss. With ``buckets`` one row travels for
    each of them, and ``counts`` are those of buckets.
    """

    experts: torch.Tensor
    places: torch.Tensor
    weights: torch.Tensor
    logits: torch.Tensor
    order: torch.Tensor
    counts: torch.Tensor
    here: Place
    capacity: bool = False
    weights_gradient: torch.Tensor | None = None
    choices: torch.Tensor | None = None
    buckets: TokenBuckets | None = None

    @property
    def chosen(self) -> int:
        """Experts of a token."""
        return self.experts.shape[-1]

    @property
    def dropped(self) -> torch.Tensor | int:
        """Choices that exceed their expert's capacity."""
        choices = self.experts.numel()
        return choices - (self.order < choices).sum() if self.capacity else 0

    @cached_property
    def back(self) -> torch.Tensor:
        """The index in expert order of each row, token by token."""
        return self.order.argsort()

    @cached_property
    def arriving(self) -> torch.Tensor:
        """Rows for this rank's experts: (etp ranks, ep ranks, own experts)."""
        etp, ep, experts = self.counts.shape
        return self.counts.view(etp, ep, ep, experts // ep)[:, :, self.here.ep]

    @property
    def own(self) -> list[int]:
        """Rows of each of this rank's experts."""
        return self.arriving.sum((0, 1)).tolist()

    @cached_property
    def sent(self) -> list[int]:
        """Rows that this rank sends to each ep rank."""
        mine = self.counts[self.here.etp, self.here.ep]
        return mine.view(self.counts.shape[1], -1).sum(-1).tolist()

    @property
    def received(self) -> list[int]:
        """Rows that this rank receives from each ep rank."""
        return self.arriving[self.here.etp].sum(-1).tolist()

    @property
    def parts(self) -> list[int]:
        """Rows that each etp rank has received."""
        return self.arriving.sum((1, 2)).tolist()

    @cached_property
    def sorting(self) -> torch.Tensor:
        """The permutation that sorts arrived rows by own expert."""
        blocks = self.arriving.flatten()
        expert = torch.arange(self.arriving.shape[-1]).repeat(len(blocks) // self.arriving.shape[-1])
        return expert.repeat_interleave(blocks).argsort(stable=True).to(self.order.device)

    @cached_property
    def unsorting(self) -> torch.Tensor:
        """The inverse of ``sorting``."""
        return self.sorting.argsort()

    def of_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return tokens (sequence, batch, width) as rows in the order of experts."""
        return self._with_zeros(x.flatten(0, 1))[self.order // self.chosen]

    def by_token(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows in the order of experts, (rows, …), as (tokens, chosen, …); zeros where nothing was sent."""
        if not self.capacity:
            return rows[self.back].unflatten(0, (-1, self.chosen))
        found = rows.new_zeros((self.experts.numel() + 1, *rows.shape[1:]))
        found[self.order] = rows
        return found[:-1].unflatten(0, (-1, self.chosen))

    def of_choices(self, values: torch.Tensor) -> torch.Tensor:
        """Return one number per choice, (tokens, chosen), in the order of experts."""
        return self._with_zeros(values.flatten())[self.order]

    def _with_zeros(self, x: torch.Tensor) -> torch.Tensor:
        """Append a row of zeros, which rows without a token take."""
        return torch.cat([x, x.new_zeros((1, *x.shape[1:]))]) if self.capacity else x


def order_of(places: torch.Tensor) -> torch.Tensor:
    """Return the order that sorts the rows of tokens by expert, stable in the order of tokens."""
    return places.flatten().argsort(stable=True)


def gathered(communicator: Communicator, item: Collective, rows: torch.Tensor, parts: list[int]) -> Exchange:
    """Gather the rows of all ranks of an etp group, in rank order."""
    longest, width = max(parts), rows.shape[-1]
    padded = rows.new_zeros((longest, width))
    padded[: len(rows)] = rows
    out = rows.new_empty((len(parts) * longest, width))
    yield communicator.start(item, padded, ACTIVATION_BYTES, out=out, elements=sum(parts) * width)
    return torch.cat([part[:size] for part, size in zip(out.split(longest), parts, strict=True)])


def summed_over_etp(
    communicator: Communicator, item: Collective, rows: torch.Tensor, parts: list[int], place: int
) -> Exchange:
    """Sum partial rows over the ranks of an etp group and return this rank's."""
    longest, width = max(parts), rows.shape[-1]
    padded = rows.new_zeros((len(parts), longest, width))
    for at, part in enumerate(rows.split(parts)):
        padded[at, : len(part)] = part
    out = rows.new_empty((longest, width))
    yield communicator.start(
        item, padded.flatten(0, 1), ACTIVATION_BYTES, out=out, elements=sum(parts) * width
    )
    return out[: parts[place]]
