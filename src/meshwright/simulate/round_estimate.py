"""Estimate the mean step of a plan with entries of ``synchronise``: exchanges between islands, and codecs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm

from meshwright.cost.operators.pass_prices import Prices
from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.plan_report import Estimate
from meshwright.cost.synchronisation.exchange_rows import IN_STEPS, SHARED, ExchangeSummary
from meshwright.cost.synchronisation.exchanges_in_steps import (
    program_exchanges,
    step_codec_seconds,
    step_rows,
)
from meshwright.cost.synchronisation.exchanges_of_islands import ProgramExchanges
from meshwright.cost.synchronisation.round_time import EntryTimes, RoundTime, play_rounds
from meshwright.plans.setting import Setting
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.program.program import Program

CODEC = "codec"
BETWEEN_STEPS = (
    "predicted: means over a round of steps that is played with its exchanges; passes of codecs are assumed; inside "
    f"steps {SHARED}"
)
AT_BASE = (
    f"{BETWEEN_STEPS}; the period is the base of its rule, since no --steps say how the learning rate falls"
)


@dataclass(frozen=True)
class PlannedRound:
    """The steps in which all periods of a Program's entries end together, with their exchanges.

    With a rule they are those of the run that ``rates`` describe, or those of its base.
    """

    program: Program
    prices: Prices
    rates: LearningRates | None

    @cached_property
    def exchanges(self) -> ProgramExchanges:
        """The exchanges between islands."""
        return ProgramExchanges(self.program, self.prices)

    @cached_property
    def times(self) -> list[EntryTimes]:
        """The times of each entry."""
        return self.exchanges.times(self.rates)

    @property
    def ruled(self) -> bool:
        """True if an entry has a rule of its period."""
        return any(one.periods.entry.has_rule for one in self.times)

    @property
    def run(self) -> int | None:
        """The steps of a run with a rule; None without a rule, and where no run is known."""
        return self.rates.steps if self.ruled and self.rates is not None else None

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.run or lcm(*(one.periods.entry.period for one in self.times))

    def played(self, step_s: float) -> RoundTime:
        """Play the exchanges between steps of so many seconds."""
        return play_rounds(step_s, self.times, self.steps, whole_run=self.run is not None)

    def summary(self, step_s: float, played: RoundTime) -> ExchangeSummary:
        """Return the rows of the exchanges between islands; ``step_s`` is a step without them."""
        at_base = self.ruled and self.run is None
        periods = any(one.periods.entry.period > 1 for one in self.times)
        return ExchangeSummary(
            tuple(self.exchanges.rows(self.times, step_s, played)),
            None if at_base else self.steps,
            "round" if self.ruled or periods else "step",
            AT_BASE if at_base else BETWEEN_STEPS,
        )


def with_rounds(found: Estimate, program: Program, setting: Setting) -> Estimate:
    """Return the estimate of a mean step, with exchanges between islands and codecs."""
    prices = program_prices(program, setting)
    planned = PlannedRound(program, prices, setting.rates)
    codec_s = max(step_codec_seconds(program, prices))
    step_s = sum(found.parts.values()) + codec_s
    played = planned.played(step_s) if planned.times else None
    return with_exchanges(found, planned, codec_s, played)


def with_exchanges(
    found: Estimate, planned: PlannedRound, codec_s: float, played: RoundTime | None
) -> Estimate:
    """Return the estimate of a step with its ``codec_s`` and its mean part of a round's exchanges, if it has any."""
    inside = tuple(step_rows(program_exchanges(planned.program, planned.prices), found.parts))
    parts = found.parts | {CODEC: codec_s}
    if played is None:
        return replace(found, parts=parts, rounds=ExchangeSummary(inside, 1, "step", IN_STEPS))
    step_s = sum(parts.values())
    parts["dp"] += _mean(played.exposed_s, played)
    parts[CODEC] += _mean(played.codec_s, played)
    parts["optimizer"] += _mean(played.update_s, played)
    summary = planned.summary(step_s, played)
    return replace(found, parts=parts, rounds=replace(summary, rows=(*summary.rows, *inside)))


def _mean(seconds: Mapping[int, float], played: RoundTime) -> float:
    return sum(seconds.values()) / played.steps
