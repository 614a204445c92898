"""The budget and the deadline of a whole training."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.economy.training_cost import Costs
from meshwright.errors import Problem


@dataclass(frozen=True, slots=True)
class Limits:
    """Dollars and days at most; None: no limit."""

    budget_usd: float | None = None
    deadline_days: float | None = None

    @property
    def any(self) -> bool:
        """Return true if there is a limit."""
        return self.budget_usd is not None or self.deadline_days is not None

    def problems(self, terms: TrainingTerms | None) -> Iterator[Problem]:
        """Yield the problems of the limits; ``terms`` is None where these are wrong themselves."""
        for name, limit, example in (
            ("budget", self.budget_usd, "100000"),
            ("deadline", self.deadline_days, "30"),
        ):
            if limit is None:
                continue
            if not (isfinite(limit) and limit > 0):
                yield Problem(name, limit, "must be a number above 0", f"--{name} {example}")
            if terms is not None and terms.tokens is None:
                yield Problem(
                    name, limit, "is of a whole training, and nobody says of how many tokens", "--tokens 300B"
                )

    def met(self, costs: Costs) -> bool:
        """Return true if a training keeps its limits; without a price it keeps no budget."""
        return self.in_budget(costs) and self.in_time(costs)

    def in_budget(self, costs: Costs) -> bool:
        """Return true if the costs are within the budget."""
        return self.budget_usd is None or (costs.usd is not None and costs.usd <= self.budget_usd)

    def in_time(self, costs: Costs) -> bool:
        """Return true if the days are within the deadline."""
        return self.deadline_days is None or (costs.days is not None and costs.days <= self.deadline_days)
