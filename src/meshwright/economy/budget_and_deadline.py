"""Limits of a whole training: budget, deadline and power, and how sure one wants to be that all of them hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite

from meshwright.economy.tokens_and_assumptions import MAX, TrainingTerms
from meshwright.economy.training_cost import Costs
from meshwright.errors import Problem


@dataclass(frozen=True, slots=True)
class Limits:
    """Dollars, days and kW of the site at most; None: no limit.

    ``sure``: the probability with which all of them must hold; None: predicted values must hold them.
    """

    budget_usd: float | None = None
    deadline_days: float | None = None
    power_kw: float | None = None
    sure: float | None = None

    def problems(self, terms: TrainingTerms | None) -> Iterator[Problem]:
        """Yield the problems of the limits; ``terms`` is None where these are wrong themselves."""
        for name, limit, example in (
            ("budget", self.budget_usd, "100000"),
            ("deadline", self.deadline_days, "30"),
            ("power", self.power_kw, "500"),
        ):
            if limit is None:
                continue
            if not (isfinite(limit) and limit > 0):
                yield Problem(name, limit, "must be a number above 0", f"--{name} {example}")
            if name != "power" and terms is not None and terms.tokens is None and not terms.most:
                rule = "limits a whole training, whose number of tokens is not given"
                yield Problem(name, limit, rule, "--tokens 300B")
        if terms is not None and terms.most and self.budget_usd is None and self.deadline_days is None:
            rule = "needs a budget or a deadline: without one there is no largest number"
            yield Problem("tokens", MAX, rule, "--deadline 30 or --budget 100000")
        if self.sure is not None and not 0 < self.sure < 1:
            yield Problem("sure", self.sure, "must be a probability above 0 and below 1", "--sure 0.9")

    def met(self, costs: Costs) -> bool:
        """Return true if a training keeps its limits; without a price it keeps no budget."""
        return self.in_budget(costs) and self.in_time(costs) and self.powered(costs)

    def in_budget(self, costs: Costs) -> bool:
        """Return true if the costs are within the budget."""
        return self.budget_usd is None or (costs.usd is not None and costs.usd <= self.budget_usd)

    def in_time(self, costs: Costs) -> bool:
        """Return true if the days are within the deadline."""
        return self.deadline_days is None or (costs.days is not None and costs.days <= self.deadline_days)

    def powered(self, costs: Costs) -> bool:
        """Return true if the power of the site is within the limit; an unknown one is not."""
        return self.power_kw is None or (costs.power_kw is not None and costs.power_kw <= self.power_kw)

    def over(self, costs: Costs) -> dict[str, float | None]:
        """Return by how much each limit is missed, in its unit; 0 where it holds, None without a limit or a figure."""
        return {
            "days": _over(costs.days, self.deadline_days),
            "usd": _over(costs.usd, self.budget_usd),
            "kw": _over(costs.power_kw, self.power_kw),
        }

    def worst_ratio(self, costs: Costs) -> float:
        """Return the largest ratio of a figure to its limit; infinite where the figure is unknown, 0 without limits."""
        pairs = (
            (costs.usd, self.budget_usd),
            (costs.days, self.deadline_days),
            (costs.power_kw, self.power_kw),
        )
        return max((inf if value is None else value / limit for value, limit in pairs if limit), default=0.0)


def _over(value: float | None, limit: float | None) -> float | None:
    return None if value is None or limit is None else max(0.0, value - limit)
