"""Send one copy of a token to each rank that holds some of its experts, in one hop or, via the nodes, in two.

A hop is one all-to-all: rows are copied for each member of a group that needs them, once per member. A row carries its
token's experts, their weights, and the ep rank it comes from: few numbers, which the Program does not count. After the
last hop rows are copied for the rank's own experts. Results are weighed there, and those of one row summed before each
hop back; the gradients of weights are computed there from saved results, and return the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.expert_dispatch.dispatch_forms import LEGS, Axes
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective, legs_of
from meshwright.runtime.comm.communicator import Communicator, Splits, Work
from meshwright.runtime.comm.routing_count_exchange import exchange_router_counts
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.moe.token_permutation import TokenPermutation
from meshwright.runtime.kernels.token_dispatch.row_copies import NOWHERE, RowCopies, row_copies

Span = tuple[int, int]


@dataclass(frozen=True)
class Here:
    """Rows that have arrived so far: their tokens' experts and weights, (rows, chosen), and their source ep ranks.

    ``span`` (first, number) is the range of ep ranks whose experts can still be reached from here.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    origins: torch.Tensor
    span: Span

    def parts(self, size: int, of: int) -> torch.Tensor:
        """Return the index of the part of the span that holds each expert: (rows, chosen).

        ``of`` is the number of equal parts, ``size`` that of experts per rank.
        """
        first, number = self.span
        ahead = self.experts.div(size, rounding_mode="floor") - first
        part = ahead.div(number // of, rounding_mode="floor")
        return part.masked_fill((ahead < 0) | (ahead >= number), NOWHERE)


@dataclass(frozen=True)
class Hop:
    """One all-to-all: the copies that this rank sends, and the rows it exchanges with each member of its group."""

    axes: Axes
    copies: RowCopies
    sent: list[int]
    received: list[int]


@dataclass
class DeduplicatedDispatch:
    """The hops to the experts, and the copies for this rank's own; ``of_weights`` are their weights' gradients."""

    routes: TokenPermutation
    communicator: Communicator
    statistic: torch.dtype
    hops: Sequence[Hop]
    own: RowCopies
    weights: torch.Tensor
    of_weights: torch.Tensor | None = None

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return one row for each token."""
        return tokens.flatten(0, 1)

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """Send rows hop by hop, then copy them for the experts."""
        for leg, hop in self._legs(item):
            out = sent.new_empty((sum(hop.received), *sent.shape[1:]))
            copies = hop.copies.copies(sent)
            yield self._start(leg, hop, copies, out, (hop.sent, hop.received))
            sent = out
        return self.own.copies(sent)

    def results(self, item: Collective, rows: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Weigh results at their experts, save them for the weights' gradients, and send them back."""
        if visit.keep.inputs:
            visit.kept["input"] = rows
        return (yield from self.back(item, rows * self.weights[:, None]))

    def weighed(self, come: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the arrived rows, which were weighed and summed on the way."""
        return come

    def unweighed(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return one row of gradients for each token."""
        return self.leave(g)

    def gradients(self, item: Collective, sent: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Return weight · gradient at the experts; save gradient · result as the weights' gradient."""
        rows = yield from self.out(item, sent)
        self.of_weights = (visit.kept.pop("input").to(self.statistic) * rows).sum(-1)
        return rows * self.weights[:, None]

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """Sum the copies of each row, hop by hop, on the way back."""
        rows = self.own.sums(rows, self.statistic)
        for leg, hop in reversed(self._legs(item)):
            come = rows.new_empty((sum(hop.sent), *rows.shape[1:]))
            yield self._start(leg, hop, rows, come, (hop.received, hop.sent))
            rows = hop.copies.sums(come, self.statistic)
        return rows

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """Return the arrived rows, summed on the way, and send the weights' gradients after them."""
        assert self.of_weights is not None
        found = self.own.to_slots(self.of_weights)
        for hop in reversed(self.hops):
            found = exchange_router_counts(self.communicator, found, hop.axes, (hop.received, hop.sent))
            found = hop.copies.sums(found, self.statistic)
        self.routes.weights_gradient = found
        return come

    def _legs(self, item: Collective) -> list[tuple[Collective, Hop]]:
        legs = legs_of(item, self.communicator.part.expert_grid)
        return list(zip(legs, self.hops, strict=True))

    def _start(
        self, leg: Collective, hop: Hop, rows: torch.Tensor, out: torch.Tensor, splits: Splits
    ) -> Work:
        """Start a hop's all-to-all, counting the rows of the way out in both directions, as the Program does."""
        elements, rows = len(hop.copies.slots) * rows.shape[-1], rows.contiguous()
        return self.communicator.start(leg, rows, ACTIVATION_BYTES, out=out, elements=elements, splits=splits)


def once_per_rank(
    routes: TokenPermutation, communicator: Communicator, statistic: torch.dtype
) -> DeduplicatedDispatch:
    """Create a dispatch with one hop: one copy per rank."""
    return _way(routes, communicator, statistic, LEGS["once-per-rank"])


def hierarchical(
    routes: TokenPermutation, communicator: Communicator, statistic: torch.dtype
) -> DeduplicatedDispatch:
    """Create a dispatch with two hops, via the rank with this rank's local index in each node."""
    return _way(routes, communicator, statistic, LEGS["hierarchical"])


def _way(
    routes: TokenPermutation, communicator: Communicator, statistic: torch.dtype, legs: Sequence[Axes]
) -> DeduplicatedDispatch:
    ranks, experts = routes.counts.shape[1:]
    origins = routes.places.new_full((len(routes.places),), routes.here.ep)
    here, hops = Here(_going(routes), routes.weights, origins, (0, ranks)), []
    for axes in legs:
        hop, here = _hop(here, communicator, axes, experts // ranks)
        hops.append(hop)
    own = row_copies(_own(here, experts // ranks))
    return DeduplicatedDispatch(routes, communicator, statistic, hops, own, own.of_slots(here.weights))


def _hop(here: Here, communicator: Communicator, axes: Axes, size: int) -> tuple[Hop, Here]:
    """Exchange the metadata of one hop; return the hop and the rows that arrive. ``size``: experts per rank."""
    members = len(communicator.ranks_of(axes))
    parts = here.parts(size, members)
    copies = row_copies(parts)
    sent = torch.bincount(parts.flatten()[copies.slots], minlength=members)
    received = exchange_router_counts(communicator, sent, axes)
    hop = Hop(axes, copies, sent.tolist(), received.tolist())
    splits, (first, number) = (hop.sent, hop.received), here.span
    numbers = torch.cat([here.experts, here.origins[:, None]], 1)
    numbers = exchange_router_counts(communicator, copies.copies(numbers), axes, splits)
    weights = exchange_router_counts(communicator, copies.copies(here.weights), axes, splits)
    left = number // members
    span = first + communicator.place_in(axes) * left, left
    return hop, Here(numbers[:, :-1], weights, numbers[:, -1], span)


def _going(routes: TokenPermutation) -> torch.Tensor:
    """Return the places of the experts that tokens are sent to, (tokens, chosen)."""
    flat = routes.places.flatten()
    sent = torch.full_like(flat, NOWHERE).index_copy(0, routes.order, flat[routes.order])
    return sent.view_as(routes.places)


def _own(here: Here, size: int) -> torch.Tensor:
    """Return each slot's own expert, with rows of different source ranks kept distinct."""
    first, _ = here.span
    own = here.experts - first * size
    keyed = here.origins[:, None] * size + own
    return keyed.masked_fill((own < 0) | (own >= size), NOWHERE)
