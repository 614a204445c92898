"""The way of a micro-batch's rows to their experts and back: permutations and counts, tensors that go with it.

A rank puts its rows in the order of their experts, which is the order of the ranks that have them, for ep cuts experts
evenly. How they get there over ep is the matter of a form of exchange (``travel/``). Where etp cuts experts' widths,
all ranks of an etp group need all rows of the group: they are gathered, padded to the longest part. What has come is
sorted by expert. Results take the same way back: sums over etp, the exchange over ep, the order of the tokens.
Where experts have a capacity some choices are not sent, and some rows are of no token.

Before that ranks tell each other how many rows they have for each expert: few numbers, which are no part of the
Program.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.program.items import Collective
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.communicator import Communicator
from meshwright.runtime.kernels.kernel import Exchange

ETP = ("etp",)


class Place(NamedTuple):
    """An expert rank's indices along etp and ep."""

    etp: int
    ep: int


@dataclass
class Routes:
    """``experts`` of each token, their ``places`` among those of all ep ranks and their ``weights``, (tokens, chosen);
    ``logits`` that all of them came from.

    ``order`` says which of the tokens · chosen rows, token by token, stands where in the order of experts; where they
    have a ``capacity`` not all of them do, and the number behind the last one is a row of zeros. ``counts``
    are rows by etp rank, ep rank and expert, on the host; ``here`` is this rank's place among them.
    ``weights_gradient`` is what the way back has found, ``choices`` what all tokens of each scope of a balancing loss
    chose.
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

    @property
    def chosen(self) -> int:
        """Experts of a token."""
        return self.experts.shape[-1]

    @property
    def dropped(self) -> torch.Tensor | int:
        """Choices that have no place at their expert."""
        choices = self.experts.numel()
        return choices - (self.order < choices).sum() if self.capacity else 0

    @cached_property
    def back(self) -> torch.Tensor:
        """Where each row, token by token, stands in the order of experts."""
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
        """Which arrived row stands where in the order of own experts."""
        blocks = self.arriving.flatten()
        expert = torch.arange(self.arriving.shape[-1]).repeat(len(blocks) // self.arriving.shape[-1])
        return expert.repeat_interleave(blocks).argsort(stable=True).to(self.order.device)

    @cached_property
    def unsorting(self) -> torch.Tensor:
        """Where each arrived row stands in the order of own experts."""
        return self.sorting.argsort()

    def of_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (sequence, batch, width) as rows in the order of experts."""
        return self._with_zeros(x.flatten(0, 1))[self.order // self.chosen]

    def by_token(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows in the order of experts, (rows, …), as (tokens, chosen, …); zeros where nothing was sent."""
        if not self.capacity:
            return rows[self.back].unflatten(0, (-1, self.chosen))
        found = rows.new_zeros((self.experts.numel() + 1, *rows.shape[1:]))
        found[self.order] = rows
        return found[:-1].unflatten(0, (-1, self.chosen))

    def of_choices(self, values: torch.Tensor) -> torch.Tensor:
        """Numbers of choices, (tokens, chosen), in the order of experts."""
        return self._with_zeros(values.flatten())[self.order]

    def _with_zeros(self, x: torch.Tensor) -> torch.Tensor:
        """What rows of no token have stands behind the last one."""
        return torch.cat([x, x.new_zeros((1, *x.shape[1:]))]) if self.capacity else x


def order_of(places: torch.Tensor) -> torch.Tensor:
    """The rows of tokens in the order of their experts; those of one expert stay in the order of tokens."""
    return places.flatten().argsort(stable=True)


def gathered(communicator: Communicator, item: Collective, rows: torch.Tensor, parts: list[int]) -> Exchange:
    """The rows of all ranks of an etp group, one after the other."""
    longest, width = max(parts), rows.shape[-1]
    padded = rows.new_zeros((longest, width))
    padded[: len(rows)] = rows
    out = rows.new_empty((len(parts) * longest, width))
    yield communicator.start(item, padded, ACTIVATION_BYTES, out=out, elements=sum(parts) * width)
    return torch.cat([part[:size] for part, size in zip(out.split(longest), parts, strict=True)])


def summed_over_etp(
    communicator: Communicator, item: Collective, rows: torch.Tensor, parts: list[int], place: int
) -> Exchange:
    """This rank's rows, summed over the ranks of an etp group, which have all of them in part."""
    longest, width = max(parts), rows.shape[-1]
    padded = rows.new_zeros((len(parts), longest, width))
    for at, part in enumerate(rows.split(parts)):
        padded[at, : len(part)] = part
    out = rows.new_empty((longest, width))
    yield communicator.start(
        item, padded.flatten(0, 1), ACTIVATION_BYTES, out=out, elements=sum(parts) * width
    )
    return out[: parts[place]]
