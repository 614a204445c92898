"""The question: which experts lie on which rank, equally many on each, so that a layer takes least time.

Tokens are at home on a data-parallel rank and come back to it behind every layer of experts. Homes are spread evenly
and know nothing of experts, so where a copy goes is all that an order of experts decides:

* b, rows of the busiest rank over the mean rank's: products of experts and the exchange wait for it;
* N, the nodes, and R, the ranks, that a token's experts lie on in the mean: copies that are sent, where a stack sends
  one to a node and one to a rank. Experts that are chosen together belong together.

``seconds`` says how long a layer takes of (b, N, R); it never falls when one of them grows. Layers ask apart, for
nothing goes from one layer's rank to the next one's. An order lists the experts as ranks hold them, rank after rank,
nodes being so many ranks in a row; which rank of a node, and which node, does not matter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.program.expert_dispatch.hit_probability import hit_probability

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class DispatchLoad(NamedTuple):
    """The load that orders put on layers: an entry for each."""

    busiest: Floats
    nodes: Floats
    ranks: Floats


Price = Callable[[DispatchLoad], Floats]


@dataclass(frozen=True, eq=False)
class Task:
    """``singles`` (layers, experts): choices of a token that fall on each expert; ``pairs`` (layers, experts, experts):
    how often it chooses both, 0 on the diagonal. ``nodes`` divides ``ranks``, which divides the experts."""

    singles: Floats
    pairs: Floats
    chosen: int
    ranks: int
    nodes: int
    seconds: Price

    @property
    def layers(self) -> int:
        """Layers that are asked about."""
        return len(self.singles)

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return self.singles.shape[1]

    @cached_property
    def as_numbered(self) -> Ints:
        """The order of the model: (layers, experts)."""
        return np.tile(np.arange(self.experts), (self.layers, 1))

    def meeting(self, orders: Ints, layers: Ints) -> DispatchLoad:
        """Return the load of each order on its layer: (n, experts), (n,)."""
        on_ranks, on_nodes = (self.sums(orders, layers, parts) for parts in (self.ranks, self.nodes))
        return self.of_sums(on_ranks, on_nodes)

    def of_sums(self, on_ranks: tuple[Floats, Floats], on_nodes: tuple[Floats, Floats]) -> DispatchLoad:
        """Return the load from the singles and pairs of every rank and node."""
        return DispatchLoad(
            on_ranks[0].max(1) * self.ranks / self.chosen,
            hit_probability(*on_nodes, self.chosen).sum(1),
            hit_probability(*on_ranks, self.chosen).sum(1),
        )

    def sums(self, orders: Ints, layers: Ints, parts: int) -> tuple[Floats, Floats]:
        """Singles and pairs of each of so many parts: (n, parts) both."""
        members = orders.reshape(len(orders), parts, -1)
        at = layers[:, None, None]
        both = self.pairs[at[..., None], members[..., :, None], members[..., None, :]]
        return self.singles[at, members].sum(2), both.sum((2, 3)) / 2
