"""Choose the tokens that an expert of limited capacity takes, scope by scope (``workload/expert_capacity.py``).

Sizes: B sequences, L positions, K chosen experts.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from meshwright.model.architecture import Experts
from meshwright.runtime.reference.routing import Choice
from meshwright.workload.expert_capacity import Capacity


@dataclass(frozen=True)
class Bounded:
    """A capacity, and the scope of each token: ``scopes`` (B, L)."""

    capacity: Capacity
    scopes: Tensor


def with_places(bounded: Bounded, moe: Experts, choice: Choice) -> Choice:
    """Return the choices of all sequences, with weight 0 where a token exceeds its expert's capacity."""
    kept_BLK = torch.zeros_like(choice.experts, dtype=torch.bool)
    for scope in bounded.scopes.unique().tolist():
        inside_BL = bounded.scopes == scope
        places = bounded.capacity.places(int(inside_BL.sum()), moe.experts, moe.experts_per_token)
        for expert in range(moe.experts):
            comers = (inside_BL[..., None] & (choice.experts == expert)).nonzero().tolist()
            comers.sort(key=lambda place: _rank(bounded.capacity, choice, *place))
            for place in comers[:places]:
                kept_BLK[tuple(place)] = True
    return replace(choice, weights=choice.weights * kept_BLK, sent=kept_BLK)


def _rank(
    capacity: Capacity, choice: Choice, sequence: int, position: int, nth: int
) -> tuple[float, int, int]:
    """Return the sort key of a choice; the least is admitted first."""
    weight = choice.weights[sequence, position, nth].float().item()
    return (-weight if capacity.drop == "probs" else 0.0, position, sequence)
