"""Which tokens an expert of limited capacity takes, scope by scope and expert by expert (``workload/capacity.py``).

Sizes: B sequences, L positions, K chosen experts.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from meshwright.model.architecture import Experts
from meshwright.runtime.reference.routing import Choice
from meshwright.workload.capacity import Capacity


@dataclass(frozen=True)
class Bounded:
    """``scopes`` (B, L) says in which scope of ``capacity`` a token is."""

    capacity: Capacity
    scopes: Tensor


def with_places(bounded: Bounded, moe: Experts, choice: Choice) -> Choice:
    """The choice of all sequences, where who has no place at an expert has weight 0 there."""
    kept_BLK = torch.zeros_like(choice.experts, dtype=torch.bool)
    for scope in bounded.scopes.unique().tolist():
        inside_BL = bounded.scopes == scope
        places = bounded.capacity.places(int(inside_BL.sum()), moe.experts, moe.experts_per_token)
        for expert in range(moe.experts):
            comers = (inside_BL[..., None] & (choice.experts == expert)).nonzero().tolist()
            comers.sort(key=lambda place: _rank(bounded.capacity, choice, *place))
            for place in comers[:places]:
                kept_BLK[tuple(place)] = True
    return replace(choice, weights=choice.weights * kept_BLK, kept=kept_BLK)


def _rank(
    capacity: Capacity, choice: Choice, sequence: int, position: int, nth: int
) -> tuple[float, int, int]:
    """The least has the first place."""
    weight = choice.weights[sequence, position, nth].float().item()
    return (-weight if capacity.drop == "probs" else 0.0, position, sequence)
