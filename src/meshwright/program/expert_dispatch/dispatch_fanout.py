"""Dispatch fanout: the mean number of ranks or nodes that hold one of a token's experts, if experts are alike.

A token chooses k different ones of E experts, all alike to it; with groups it first chooses g of their G (DeepSeek-V2,
arXiv 2405.04434; the limit on devices is section 2.2.2 there) and then k of the A = E·g/G experts in those. Of N parts
in the order of the experts

* each part is inside one group (N a multiple of G), and that group is chosen with probability g/G:
  N·g/G · (1 − Π_{i<k} (A − E/N − i)/(A − i));
* each part has b = G/N whole groups, of which j are chosen with probability C(b, j)·C(G − b, g − j)/C(G, g):
  N·Σ_j p_j · (1 − Π_{i<k} (A − j·E/G − i)/(A − i)).

Without groups G = g = 1. Parts that cut groups in another way are counted as if there were no groups, which is no less.
Ignored: routers that prefer some experts reach fewer parts, but where pairs were counted
(``fanout_from_router_counts.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import comb, prod

import numpy as np

from meshwright.program.local_shape import Number


@dataclass(frozen=True, slots=True)
class ExpertChoice:
    """``chosen`` of ``experts`` experts, in ``chosen_groups`` of ``groups`` equal groups.

    ``counted`` says how many of so many parts are reached, where that is known better.
    """

    experts: int
    chosen: int
    groups: int = 1
    chosen_groups: int = 1
    counted: Callable[[float], Number] | None = None


def mean_dispatch_fanout(parts: Number, choice: ExpertChoice) -> Number:
    """Return the mean number of ``parts`` that hold one of a token's experts: 1 to min(parts, chosen)."""
    if not np.ndim(parts):
        return _of_one(float(parts), choice)
    values, inverse = np.unique(np.asarray(parts, dtype=np.float64), return_inverse=True)
    return np.array([_of_one(float(value), choice) for value in values])[inverse].reshape(np.shape(parts))


def _of_one(parts: float, choice: ExpertChoice) -> Number:
    if choice.counted is not None and choice.experts % parts == 0:
        return choice.counted(parts)
    return _reached(parts, choice)


@cache
def _reached(parts: float, choice: ExpertChoice) -> float:
    groups, chosen_groups = choice.groups, choice.chosen_groups
    if parts % groups and groups % parts:
        groups = chosen_groups = 1
    candidates = choice.experts * chosen_groups / groups
    if parts % groups == 0:
        hit = 1 - _missed(choice.experts / parts, candidates, choice.chosen)
        return parts * chosen_groups / groups * hit
    each, of_group = int(groups / parts), choice.experts / groups
    ways = comb(groups, chosen_groups)
    return parts * sum(
        comb(each, j)
        * comb(groups - each, chosen_groups - j)
        / ways
        * (1 - _missed(j * of_group, candidates, choice.chosen))
        for j in range(min(each, chosen_groups) + 1)
    )


def _missed(held: float, candidates: float, chosen: int) -> float:
    """Return the probability that none of ``chosen`` different candidates is among a part's ``held`` ones."""
    return prod(max(0.0, candidates - held - i) / max(candidates - i, 1.0) for i in range(chosen))
