"""The gain of an order of experts for a plan, in numbers and in words."""

from dataclasses import dataclass
from typing import Any

from meshwright.placement.expert_order.solve import ExpertPlacement
from meshwright.units import format_seconds


@dataclass(frozen=True, slots=True)
class ExpertOrderGain:
    """The predicted effect of an order of experts, as a mean over layers: in the model's order, and in this one.

    ``crossing`` are a token's copies that go to other nodes, ``busiest`` the busiest rank's rows over the mean's.
    """

    answer: ExpertPlacement
    crossing: tuple[float, float]
    busiest: tuple[float, float]
    step_s: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "copies_to_other_nodes": list(self.crossing),
            "busiest_rank": list(self.busiest),
            "step_time_s": list(self.step_s),
            "gap": self.answer.gap,
            "exact": self.answer.exact,
            "origin": "predicted from what was counted; the first of each two is the model's order",
        }

    def __str__(self) -> str:
        known = (
            "the best of all orders" if self.answer.exact else f"at most {self.answer.gap:.1%} above the best"
        )
        crossing, busiest = (f"{one:.3g} → {other:.3g}" for one, other in (self.crossing, self.busiest))
        seconds = " → ".join(map(format_seconds, self.step_s))
        return (
            f"copies of a token to other nodes {crossing}, rows of the busiest rank over the mean {busiest}, step "
            f"{seconds} (predicted); time of these layers {known}"
        )
