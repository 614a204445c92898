"""Two plans against each other: the choices in which they differ, and what that does, the largest part first.

Both are of one model and one step; cluster and stack may differ. In one setting two predictions are a tie inside the
interval of their ratio, otherwise where their own 80 % intervals overlap.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.explain.beside import Beside, Subject, beside
from meshwright.explain.bracket import first_change
from meshwright.explain.contest import Round
from meshwright.explain.explained import SEARCHED, public
from meshwright.explain.forecast import NAMES, differences
from meshwright.explain.resources import Resource, rates
from meshwright.explain.sensitivity import seconds_at
from meshwright.explain.spent import Spent
from meshwright.explain.turns import Turn, ladders, smallest
from meshwright.plan.resolve import Resolved
from meshwright.units import format_bytes, format_seconds

NOT_SEARCHED = "null: two plans are compared with --against, and nothing is searched"


@dataclass(frozen=True, slots=True)
class Against:
    """Two plans. ``turns`` are changes at which the slower one becomes the quicker."""

    own: Spent
    other: Spent
    beside: Beside
    tie: bool
    turns: tuple[Turn, ...]

    @property
    def fits(self) -> bool:
        """Whether the plan that is explained fits."""
        return self.own.subject.forecast.fits

    @property
    def summary(self) -> list[str]:
        """Who is quicker, by how much and where; what would turn that."""
        found = smallest(self.turns)
        sentences = [f"The other plan, {self.beside.text}."]
        if self.tie:
            sentences.append("The two are a tie for the prediction: probe both.")
        if found is not None:
            sentences.append(f"The smallest change of a rate that turns it: {found.text}.")
        return sentences

    @property
    def lines(self) -> list[str]:
        """A line for each part of time and memory that differs, the largest difference first."""
        own, other = self.beside.own, self.beside.forecast
        return [
            *_changed(own.parts, other.parts, format_seconds),
            *_changed(own.ledger, other.ledger, format_bytes),
        ]

    def to_json(self) -> dict[str, Any]:
        """The public form: that of an explanation, with the other plan under ``against``."""
        against = {
            **self.beside.to_json(),
            "tie": self.tie,
            "predict": self.other.report.to_json(),
            "time": self.other.time_json(),
            "memory": self.other.memory_json(),
            "lines": self.lines,
            "turns": [one.to_json() for one in self.turns],
        }
        return public(self.own, self.summary, {}, against, dict.fromkeys(SEARCHED, NOT_SEARCHED))


def _changed(
    own: Mapping[str, float], other: Mapping[str, float], shown: Callable[[float], str]
) -> Iterator[str]:
    """``bubble: 2.352 s → 2.556 s`` for every part that reads differently."""
    for name in differences(own, other):
        left, right = shown(own.get(name, 0.0)), shown(other.get(name, 0.0))
        if left != right:
            yield f"{NAMES.get(name, name)}: {left} → {right}"


def compared(own: Resolved, other: Resolved, where: str) -> Against:
    """Two plans; ``where`` names the other one. Raises InputError where they can not be compared part by part."""
    _check_alike(own, other, where)
    subjects = Subject.of(own), Subject.of(other)
    ours, theirs = map(Spent.of, subjects)
    found = beside(subjects[0], other, subjects[1].forecast)
    same = own.setting == other.setting
    tie = found.to_json()["tie"] if same else _overlap(ours, theirs)
    return Against(ours, theirs, found, tie, tuple(_turns(*subjects)) if same else ())


def _check_alike(own: Resolved, other: Resolved, where: str) -> None:
    """One model, and one step of it."""
    ours, theirs = own.setting, other.setting
    problems = []
    if ours.model.architecture != theirs.model.architecture:
        rule = f"is a plan for {theirs.model.name}, and parts of a step are compared for one model"
        problems.append(Problem("against", where, rule, f"a plan for {ours.model.name}"))
    for name in ("task", "seq_len", "global_batch", "documents", "routing", "capacity"):
        mine, its = getattr(ours.workload, name), getattr(theirs.workload, name)
        if mine != its:
            rule = f"has workload.{name} {its} in place of {mine}, and seconds of another step do not compare"
            problems.append(Problem("against", where, rule, f"workload.{name}: {mine} in both plans"))
    if problems:
        raise InputError(problems)


def _overlap(own: Spent, other: Spent) -> bool:
    """Whether the intervals of two step times have something in common."""
    a, b = own.report, other.report
    lows, highs = (a.step_time_low_s, b.step_time_low_s), (a.step_time_high_s, b.step_time_high_s)
    if None in lows or None in highs:
        return False
    return max(low for low in lows if low is not None) <= min(high for high in highs if high is not None)


def _turns(own: Subject, other: Subject) -> Iterator[Turn]:
    """Where the order of two plans in one setting turns."""
    quick = own.quick and other.quick
    for resource in rates(own.setting):
        now = _order(own, other, resource, 1.0)
        for ladder in ladders(resource, quick=quick):
            bracket = first_change(_same(own, other, resource, now), ladder, bisect=quick)
            if bracket is not None:
                after = Round(*_both(own, other, resource, bracket.new), other.resolved.long)
                which = "this plan" if after.own_s <= after.best_s else "the other plan"
                times = f"{format_seconds(after.own_s)} against {format_seconds(after.best_s)}"
                why = f"{which} becomes the quicker one, {times}"
                yield Turn(resource, bracket, after, why)


def _same(own: Subject, other: Subject, resource: Resource, now: bool) -> Callable[[float], bool]:
    return lambda factor: _order(own, other, resource, factor) == now


def _order(own: Subject, other: Subject, resource: Resource, factor: float) -> bool:
    """Whether the first is at least as quick."""
    ours, theirs = _both(own, other, resource, factor)
    return ours <= theirs


def _both(own: Subject, other: Subject, resource: Resource, factor: float) -> tuple[float, float]:
    return seconds_at(own, resource, factor), seconds_at(other, resource, factor)
