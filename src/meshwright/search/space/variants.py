"""Variants of a base plan: its choices other than degrees, schedule and sharding.

A base plan fixes layout, micro-batch, schedule, experts' degrees and sharding. A variant fixes the rest
(``choices.py``):
what runs again in the backward pass, whether sequences are cut over tp between products (sequence parallelism), in
which order ranks are numbered, what waits on the hosts. The usual variants are the recomputations that have a name of
their own, with sequence parallelism and the default order; all variants have sets of operators and what else a stack
leaves to a plan. One choice is left open by most variants and made later (``deferred_choice.py``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.plan_choice import Bools, ChoiceRuleInput, Values
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.plans.setting import Setting
from meshwright.search.space.choices import DEFERRED_CHOICE, SEARCHED_CHOICES, VariantChecks
from meshwright.search.space.constraints import Keep
from meshwright.search.space.constraints import exclusion_reason as because
from meshwright.search.space.deferred_choice import DeferredChoice

COLUMNS_OF_BASE = tuple(name for name in COLUMNS if name not in SEARCHED_CHOICES)
"""Columns that a base plan says, and no variant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Codes by column, of a space's values; what has none is as the base plan has it."""

    codes: Mapping[str, int] = field(default_factory=dict)

    def of(self, base: PlanArrays) -> dict[str, Any]:
        """Return the columns of base plans that the variant decides."""
        return {
            name: SEARCHED_CHOICES[name].codes(base, code).astype(base.columns[name].dtype, copy=False)
            for name, code in self.codes.items()
        }

    def values(self, base: PlanArrays) -> dict[str, Any]:
        """Return the values that the variant chooses, by column."""
        return {name: base.values[name][code] for name, code in self.codes.items()}


@dataclass(frozen=True, slots=True)
class Variants:
    """The candidate values of each choice; schedules that must be played use only the ``usual`` ones."""

    values: Mapping[str, Values]
    usual: Mapping[str, Values]

    def known(self, name: str) -> Values:
        """Return the values that codes of a column stand for."""
        return CHOICES[name].known or self.values[name]

    @property
    def all(self) -> tuple[Variant, ...]:
        """Return every combination; two that differ in the last choices alone are neighbours.

        Those that must be played come with usual values of what is chosen later, the others leave it open.
        """
        first = {name: of[:1] for name, of in self.values.items() if SEARCHED_CHOICES[name].played}
        cheap = {
            name: first.get(name, of) for name, of in self.values.items() if not SEARCHED_CHOICES[name].later
        }
        some = {name: of if name in first else self.usual[name] for name, of in self.values.items()}
        played = [one for one in _chosen(some) if any((one[name],) != of for name, of in first.items())]
        return tuple(self.variant(one) for one in (*_chosen(cheap), *played))

    @property
    def later(self) -> tuple[Variant, ...]:
        """Return a variant for each value of each deferred choice."""
        return tuple(
            self.variant({name: value})
            for name, of in self.values.items()
            if SEARCHED_CHOICES[name].later
            for value in of
        )

    @property
    def count(self) -> int:
        """Count the variants, with the values of deferred choices."""
        return sum(len(self.later) if leaves_open(variant) else 1 for variant in self.all)

    def variant(self, chosen: Mapping[str, Any]) -> Variant:
        """Return the variant with the chosen values."""
        return Variant({name: self.known(name).index(value) for name, value in chosen.items()})


def leaves_open(variant: Variant) -> bool:
    """Return true if the variant leaves the deferred choice open."""
    return DEFERRED_CHOICE not in variant.codes


def _chosen(values: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Return every combination of values."""
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


def usual_variants(setting: Setting, keep: Keep) -> Variants:
    """Return the usual values and the fixed values of a question."""
    usual = _with_fixed({name: choice.usual(setting) for name, choice in SEARCHED_CHOICES.items()}, keep)
    return Variants(usual, usual)


def all_variants(setting: Setting, keep: Keep) -> Variants:
    """Return every value that the stack leaves to a plan."""
    every = _with_fixed({name: choice.every(setting) for name, choice in SEARCHED_CHOICES.items()}, keep)
    return Variants(every, usual_variants(setting, keep).values)


def _with_fixed(values: Mapping[str, Values], keep: Keep) -> dict[str, Values]:
    """Return the values and the fixed values of a question among them."""
    fixed = {name: (keep[CHOICES[name].name],) if CHOICES[name].name in keep else () for name in values}
    alone = [name for name in values if SEARCHED_CHOICES[name].alone and fixed[name]]
    return {
        name: fixed[name] if name in alone else tuple(dict.fromkeys((*known, *fixed[name])))
        for name, known in values.items()
    }


def are_usual(some: Iterable[Variant], base: PlanArrays, usual: Variants) -> Bools:
    """Return the mask of variants with only usual values."""
    own = [variant.values(base) for variant in some]
    return np.array(
        [all(value in usual.values[name] for name, value in chosen.items()) for chosen in own], dtype=np.bool_
    )


def _removed(checks: VariantChecks, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """Yield a reason and a mask of plans left: for each constraint of the question, then for each choice's rules."""
    chosen = variant.values(checks.base)
    for name, own in chosen.items():
        concerned = SEARCHED_CHOICES[name].concerns(checks.base)
        for value, wanted in checks.constraints.of(CHOICES[name].name):
            same = np.where(concerned, own == value, checks.base.values[name][0] == value)
            yield because(CHOICES[name].name, value, wanted=wanted), same == wanted
    for name, own in chosen.items():
        yield from SEARCHED_CHOICES[name].rule(checks, own)
    for limit in checks.limits.reading((*COLUMNS_OF_BASE, *chosen)):
        if not set(limit.reads).isdisjoint(chosen):
            yield checks.limits.reason(limit), _allowed(checks, limit, variant)


def _allowed(checks: VariantChecks, limit: StackLimit, variant: Variant) -> Bools:
    """Return the mask of base plans that a limit allows with a variant's choices, found once for equal ones."""
    key = limit, tuple((name, variant.codes[name]) for name in limit.reads if name in variant.codes)
    if key not in checks.allowed:
        own = variant.of(checks.base)
        table = {name: own.get(name, checks.base.columns[name]) for name in limit.reads}
        checks.allowed[key] = checks.limits.allowed(limit, table, checks.base.values)
    return checks.allowed[key]


def with_every_later(plan: PlanArrays, setting: Setting) -> PlanArrays:
    """One plan with each legal value of what is chosen later, the one that it has among them."""
    values = plan.values[DEFERRED_CHOICE]
    plans = plan.take(np.zeros(len(values), dtype=np.int64))
    given = ChoiceRuleInput(plan, setting, {DEFERRED_CHOICE: values})
    legal = [
        all(may.all() for _, may in SEARCHED_CHOICES[DEFERRED_CHOICE].rule(given, value)) for value in values
    ]
    legal[int(plan.columns[DEFERRED_CHOICE][0])] = True
    return plans.with_columns({DEFERRED_CHOICE: np.arange(len(values))}).take(np.array(legal, dtype=np.bool_))


def legal_variants(
    checks: VariantChecks, variants: Variants, rejected: Counter[str]
) -> tuple[Bools, DeferredChoice]:
    """Return the mask (variants, n) of legal variants of base plans, and their deferred choices.

    What a rule removes is counted.
    """
    open_ = np.array([leaves_open(variant) for variant in variants.all], dtype=np.bool_)
    weights = np.where(open_, len(variants.later), 1)
    legal = np.ones((len(variants.all), len(checks.base)), dtype=np.bool_)
    for row, variant, weight in zip(legal, variants.all, weights, strict=True):
        _remove(checks, variant, row, np.full(len(row), weight), rejected)
    weights = legal[open_].sum(0)
    later = np.ones((len(variants.later), len(checks.base)), dtype=np.bool_)
    for row, variant in zip(later, variants.later, strict=True):
        _remove(checks, variant, row, weights, rejected)
    legal[open_] &= later.any(0)
    return legal, DeferredChoice.open(DEFERRED_CHOICE, later)


def _remove(
    checks: VariantChecks, variant: Variant, row: Bools, weights: NDArray[np.int64], rejected: Counter[str]
) -> None:
    """Clear base plans in ``row`` that rules forbid to a variant; each stands for as many plans as it weighs."""
    for reason, allowed in _removed(checks, variant):
        removed = int(weights[row & ~allowed].sum())
        if removed:
            rejected[reason] += removed
        row &= allowed
