"""A copy of a token for each rank that has some of its experts, over one leg or, by way of the nodes, over two.

A hop is one leg: rows that are here are copied for the members of a group that they go to, each row once for each of
them. With a row go the experts that its token chose, what their results count, and the ep rank that it is from: few
numbers, none of the Program's bytes. Where the last hop ends copies are made for a rank's own experts. Results are
weighed there, and what belongs to one row is summed before each hop back; the gradients of weights, found there from
results that were kept there, take the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.exchange import LEGS, Axes
from meshwright.program.items import Collective, legs_of
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.choice_counts import exchanged
from meshwright.runtime.communicator import Communicator, Splits, Work
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.routes import Routes
from meshwright.runtime.kernels.travel.spread import NOWHERE, Spread, spread
from meshwright.runtime.visit import Visit

Span = tuple[int, int]


@dataclass(frozen=True)
class Here:
    """Rows that have come so far: their tokens' experts and weights, (rows, chosen), and the ep ranks they are from.

    The experts that are ahead of them are those of the ep ranks of ``span``: first, number.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    origins: torch.Tensor
    span: Span

    def parts(self, size: int, of: int) -> torch.Tensor:
        """Which of ``of`` equal parts of the span has each expert, where a rank has ``size``: (rows, chosen)."""
        first, number = self.span
        ahead = self.experts.div(size, rounding_mode="floor") - first
        part = ahead.div(number // of, rounding_mode="floor")
        return part.masked_fill((ahead < 0) | (ahead >= number), NOWHERE)


@dataclass(frozen=True)
class Hop:
    """One leg: the copies that this rank sends, and how many go to and come from each member of its group."""

    axes: Axes
    copies: Spread
    sent: list[int]
    received: list[int]


@dataclass
class OnceWay:
    """The hops to the experts, and the copies for this rank's own; ``of_weights`` are gradients found on the way."""

    routes: Routes
    communicator: Communicator
    statistic: torch.dtype
    hops: Sequence[Hop]
    own: Spread
    weights: torch.Tensor
    of_weights: torch.Tensor | None = None

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """A row for each token."""
        return tokens.flatten(0, 1)

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """Hop by hop, then copies for experts."""
        for leg, hop in self._legs(item):
            out = sent.new_empty((sum(hop.received), *sent.shape[1:]))
            copies = hop.copies.copies(sent)
            yield self._start(leg, hop, copies, out, (hop.sent, hop.received))
            sent = out
        return self.own.copies(sent)

    def results(self, item: Collective, rows: torch.Tensor, visit: Visit) -> Exchange:
        """Weighed where experts are; the results are kept there for the gradients of the weights."""
        if visit.keep.inputs:
            visit.kept["input"] = rows
        return (yield from self.back(item, rows * self.weights[:, None]))

    def weighed(self, come: torch.Tensor, visit: Visit) -> torch.Tensor:
        """They were weighed and summed on the way."""
        return come

    def unweighed(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """A row for each token."""
        return self.leave(g)

    def gradients(self, item: Collective, sent: torch.Tensor, visit: Visit) -> Exchange:
        """Weight · gradient, where experts are; gradient · result is that of the weight."""
        rows = yield from self.out(item, sent)
        self.of_weights = (visit.kept.pop("input").to(self.statistic) * rows).sum(-1)
        return rows * self.weights[:, None]

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """Sums of what belongs to one row, hop by hop."""
        rows = self.own.sums(rows, self.statistic)
        for leg, hop in reversed(self._legs(item)):
            come = rows.new_empty((sum(hop.sent), *rows.shape[1:]))
            yield self._start(leg, hop, rows, come, (hop.received, hop.sent))
            rows = hop.copies.sums(come, self.statistic)
        return rows

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """They were summed on the way; the gradients of weights follow them."""
        assert self.of_weights is not None
        found = self.own.to_slots(self.of_weights)
        for hop in reversed(self.hops):
            found = exchanged(self.communicator, found, hop.axes, (hop.received, hop.sent))
            found = hop.copies.sums(found, self.statistic)
        self.routes.weights_gradient = found
        return come

    def _legs(self, item: Collective) -> list[tuple[Collective, Hop]]:
        legs = legs_of(item, self.communicator.program.expert_grid)
        return list(zip(legs, self.hops, strict=True))

    def _start(
        self, leg: Collective, hop: Hop, rows: torch.Tensor, out: torch.Tensor, splits: Splits
    ) -> Work:
        """The Program counts what goes out on a leg, and as much that comes back."""
        elements, rows = len(hop.copies.slots) * rows.shape[-1], rows.contiguous()
        return self.communicator.start(leg, rows, ACTIVATION_BYTES, out=out, elements=elements, splits=splits)


def once_per_rank(routes: Routes, communicator: Communicator, statistic: torch.dtype) -> OnceWay:
    """In one hop."""
    return _way(routes, communicator, statistic, LEGS["once-per-rank"])


def hierarchical(routes: Routes, communicator: Communicator, statistic: torch.dtype) -> OnceWay:
    """By way of the rank in this rank's place in each node."""
    return _way(routes, communicator, statistic, LEGS["hierarchical"])


def _way(routes: Routes, communicator: Communicator, statistic: torch.dtype, legs: Sequence[Axes]) -> OnceWay:
    ranks, experts = routes.counts.shape[1:]
    origins = routes.places.new_full((len(routes.places),), routes.here.ep)
    here, hops = Here(_going(routes), routes.weights, origins, (0, ranks)), []
    for axes in legs:
        hop, here = _hop(here, communicator, axes, experts // ranks)
        hops.append(hop)
    own = spread(_own(here, experts // ranks))
    return OnceWay(routes, communicator, statistic, hops, own, own.of_slots(here.weights))


def _hop(here: Here, communicator: Communicator, axes: Axes, size: int) -> tuple[Hop, Here]:
    """A leg, and what has come over it; ``size`` is the number of a rank's experts."""
    members = len(communicator.ranks_of(axes))
    parts = here.parts(size, members)
    copies = spread(parts)
    sent = torch.bincount(parts.flatten()[copies.slots], minlength=members)
    received = exchanged(communicator, sent, axes)
    hop = Hop(axes, copies, sent.tolist(), received.tolist())
    splits, (first, number) = (hop.sent, hop.received), here.span
    numbers = torch.cat([here.experts, here.origins[:, None]], 1)
    numbers = exchanged(communicator, copies.copies(numbers), axes, splits)
    weights = exchanged(communicator, copies.copies(here.weights), axes, splits)
    left = number // members
    span = first + communicator.place_in(axes) * left, left
    return hop, Here(numbers[:, :-1], weights, numbers[:, -1], span)


def _going(routes: Routes) -> torch.Tensor:
    """The places of the experts that tokens go to, (tokens, chosen)."""
    flat = routes.places.flatten()
    sent = torch.full_like(flat, NOWHERE).index_copy(0, routes.order, flat[routes.order])
    return sent.view_as(routes.places)


def _own(here: Here, size: int) -> torch.Tensor:
    """Which of this rank's experts each slot has, told apart by the rank that the row is from."""
    first, _ = here.span
    own = here.experts - first * size
    keyed = here.origins[:, None] * size + own
    return keyed.masked_fill((own < 0) | (own >= size), NOWHERE)
