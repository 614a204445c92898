"""Try suggestions on the plan, and show the ones that remove the problem without adding another.

What a plan file could hold (``tp: 4, dp_shard: 2``), a list of values and ``take it out`` are applied to the plan, and
the same rules judge the result. Alternatives that do not help are left out. Where none helps, other values of the key
are tried, then of other keys, then pairs; data parallelism absorbs a changed degree, and the text names it. Prose
(``a cluster file whose node has …``) changes no plan and stays as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from meshwright.errors import Problem
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.overrides import MESH_AXES, try_overrides
from meshwright.plans.setting_candidates import candidates_for
from meshwright.plans.suggested_settings import Settings, suggested_settings, suggestion_text
from meshwright.stack.stack import Stack

NamedProblem = tuple[str, Problem]
Judge = Callable[[ShortPlan], Sequence[NamedProblem]]
"""The problems of a plan, each with the name of its rule."""


def no_problems(plan: ShortPlan) -> list[NamedProblem]:
    """Return nothing: nobody but the rules judges the plan."""
    return []


MOST = 200
"""Changes that are tried for one problem besides the rule's own."""
NOTHING_HELPS = "no change of one or two keys that was tried mends this by itself"
Keys = frozenset[tuple[str, str]]
"""Problems by rule and field."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The errors of a changed plan, and all its problems. ``settings`` name every key that changed."""

    settings: Settings
    errors: Keys
    all: Keys


@dataclass(frozen=True, slots=True)
class SuggestionTrial:
    """A plan with its problems, and the rules that judge what a suggestion makes of it."""

    plan: ShortPlan
    found: Sequence[NamedProblem]
    devices: int
    experts: int
    stack: Stack
    judge: Judge
    outcomes: dict[Settings, tuple[Outcome, ...]] = field(default_factory=dict)

    def with_tried_suggestions(self) -> list[Problem]:
        """Return the problems with suggestions that help."""
        return [self.tried(rule, problem) for rule, problem in self.found]

    def tried(self, rule: str, problem: Problem) -> Problem:
        """Return the problem of a rule with a suggestion that helps; of a doubt, perhaps with none."""
        own = suggested_settings(problem)
        if not own:
            return problem
        strict = [True, False] if problem.severity == "error" else [True]
        others = list(
            islice(candidates_for(self.plan, problem.field, self.devices, self.experts, self.stack), MOST)
        )
        for only in strict:
            helping = list(self._helping(own, (rule, problem.field), strict=only))
            if helping == list(own):
                return problem
            found = helping or list(islice(self._helping(others, (rule, problem.field), strict=only), 1))
            if found:
                return replace(problem, suggestion=", or ".join(dict.fromkeys(map(suggestion_text, found))))
        return replace(problem, suggestion=self._next_step(own, (rule, problem.field)) if strict[1:] else "")

    def _next_step(self, own: Sequence[Settings], key: tuple[str, str]) -> str:
        """Return the rule's own change that leaves the fewest others to make, and names them."""
        before = _outcome((), self.found)
        ends = [after for settings in own for after in self._outcomes(settings) if key not in after.all]
        if not ends:
            return NOTHING_HELPS
        least = min(ends, key=lambda after: len(after.errors - before.errors))
        fields = sorted({path for _, path in least.errors - before.errors})
        return f"{suggestion_text(least.settings)}, and then change {', '.join(fields)}"

    def _helping(
        self, changes: Iterable[Settings], key: tuple[str, str], *, strict: bool
    ) -> Iterator[Settings]:
        """Yield the changes that remove a problem and bring no other; ``strict``: no other doubt either."""
        before = _outcome((), self.found)
        for settings in changes:
            for after in self._outcomes(settings):
                new = after.all - before.all if strict else after.errors - before.errors
                if key not in after.all and not new:
                    yield after.settings
                    break

    def _outcomes(self, settings: Settings) -> tuple[Outcome, ...]:
        """Return what comes of settings as they stand, and with data parallelism adapted to the devices."""
        if settings not in self.outcomes:
            plans = [try_overrides(self.plan, settings, devices) for devices in (None, self.devices)]
            changed = [p for i, p in enumerate(plans) if p is not None and p not in (self.plan, *plans[:i])]
            self.outcomes[settings] = tuple(
                _outcome((*settings, *_moved(self.plan, plan, settings)), self.judge(plan))
                for plan in changed
            )
        return self.outcomes[settings]


def _moved(before: ShortPlan, after: ShortPlan, settings: Settings) -> Settings:
    """Return the degrees that changed with the settings without being named by them."""
    named = {setting.partition("=")[0].rpartition(".")[2] for setting in settings}
    degrees = {axis: getattr(after.layout, axis) for axis in MESH_AXES}
    return tuple(
        f"{axis}={degree}"
        for axis, degree in degrees.items()
        if axis not in named and degree != getattr(before.layout, axis)
    )


def _outcome(settings: Settings, found: Sequence[NamedProblem]) -> Outcome:
    return Outcome(
        settings,
        frozenset((rule, problem.field) for rule, problem in found if problem.severity == "error"),
        frozenset((rule, problem.field) for rule, problem in found),
    )
