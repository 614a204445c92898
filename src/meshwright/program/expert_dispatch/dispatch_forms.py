"""Forms of the all-to-all over ep that dispatches tokens to their experts and combines the results.

Of k chosen experts, the ep ranks that have them are r ≤ k, on d ≤ r nodes. Legs follow each other:

==================  ===============================================  ==========================================
form                legs to the experts                              copies of a token
==================  ===============================================  ==========================================
``flat``            all-to-all over ep                               k, one for each chosen expert
``bucketed``        all-to-all over ep                               fewer: one row for each bucket of similar rows
                                                                     of a rank for an expert (LSH-MoE)
``once-per-rank``   all-to-all over ep                               r; copies for experts are made where it comes
``hierarchical``    all-to-all over the nodes, between ranks of one  d, then r (DeepSeek-V3, arXiv 2412.19437,
                    place in them; then over each node's ranks       section 3.2.2; DeepEP)
==================  ===============================================  ==========================================

The way back takes the same legs the other way round. Results are weighed where their experts are, and what copies came
from one row are summed before they go on: as many rows come back as went. Copies that a rank sends to itself count. A
stack says whether copies go once (``deduplicates_exchange``), the cluster which of the ranks are in one fast domain:
one domain, or one rank in each, has nothing to hand on. In the mean over routers without preferences r and d are
``mean_dispatch_fanout``; where pairs of experts were counted, what these say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice, mean_dispatch_fanout
from meshwright.program.local_shape import LocalShape, Number
from meshwright.stack.stack import Stack

ExchangeForm = Literal["flat", "bucketed", "once-per-rank", "hierarchical"]
Axes = tuple[str, ...]

EP: Axes = ("ep",)
INSIDE, ACROSS = "ep_inside", "ep_across"
LEGS: Mapping[ExchangeForm, tuple[Axes, ...]] = {
    "flat": (EP,),
    "bucketed": (EP,),
    "once-per-rank": (EP,),
    "hierarchical": ((ACROSS,), (INSIDE,)),
}
"""The axes of each leg on the way to the experts."""


@dataclass(frozen=True, slots=True)
class DeduplicatedBytes:
    """Bytes of a rank's tokens whose copies go once: to each node that they reach, and on to each rank there."""

    across_bytes: Number
    inside_bytes: Number

    def times(self, factor: Number) -> "DeduplicatedBytes":
        """So many times as much."""
        return replace(self, across_bytes=self.across_bytes * factor, inside_bytes=self.inside_bytes * factor)


def exchange_form(shape: LocalShape, stack: Stack) -> ExchangeForm:
    """Return the form of one plan's token exchange."""
    if not stack.deduplicates_exchange or shape.ep == 1:
        return "flat" if shape.hashing is None else "bucketed"
    return "hierarchical" if 1 < shape.ep_inside < shape.ep else "once-per-rank"


def ep_parts(shape: LocalShape, stack: Stack) -> dict[str, dict[str, int]]:
    """Return the axes that a hierarchical exchange cuts ep into, the fastest first."""
    if exchange_form(shape, stack) != "hierarchical":
        return {}
    inside = int(shape.ep_inside)
    return {"ep": {INSIDE: inside, ACROSS: int(shape.ep) // inside}}


def deduplicated_bytes(row_bytes: Number, choice: ExpertChoice, shape: LocalShape) -> DeduplicatedBytes:
    """In the mean, where a copy of all of a rank's tokens has ``row_bytes``."""
    choice, nodes = replace(choice, counted=shape.reached), shape.ep / shape.ep_inside
    return DeduplicatedBytes(
        row_bytes * mean_dispatch_fanout(nodes, choice), row_bytes * mean_dispatch_fanout(shape.ep, choice)
    )


def logical_bytes(once: DeduplicatedBytes, shape: LocalShape) -> Number:
    """Of the legs that there are: one over a single node, or over nodes of a single rank, is none."""
    inside = np.where(np.asarray(shape.ep_inside) > 1, once.inside_bytes, 0.0)
    across = np.where(np.asarray(shape.ep) > shape.ep_inside, once.across_bytes, 0.0)
    found = inside + across
    return found if np.ndim(found) else float(found)
