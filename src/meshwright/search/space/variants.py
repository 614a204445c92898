"""Variants of a base plan: its choices other than degrees, schedule and sharding.

A base plan says layout, micro-batch, schedule, experts' degrees and sharding. A variant says the rest (``choices.py``):
what runs again in the backward pass, whether sequences are cut over tp between products (sequence parallelism), in
which order ranks are numbered, what waits on the hosts. The usual variants are the recomputations that have a name of
their own, with sequence parallelism and the default order; all variants have sets of operators and what else a stack
leaves to a plan. One choice is left open by most variants and made later (``deferred_choice.py``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.coded_choices import CODED
from meshwright.plans.arrays.plan_arrays import COLUMNS, PlanArrays
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.plans.setting import Setting
from meshwright.search.space.choices import DEFERRED_CHOICES, SEARCHED_CHOICES, Bools, ChoiceContext, Values
from meshwright.search.space.constraints import Keep
from meshwright.search.space.constraints import exclusion_reason as because
from meshwright.search.space.deferred_choice import DeferredChoice
from meshwright.search.space.stack_limits_of_rows import StackLimitsOfRows

COLUMNS_OF_BASE = tuple(name for name in COLUMNS if name not in SEARCHED_CHOICES)
"""Columns that a base plan says, and no variant."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Codes by column, of a space's values; what has none is as the base plan has it."""

    codes: Mapping[str, int] = field(default_factory=dict)

    def of(self, base: PlanArrays) -> dict[str, Any]:
        """Return the columns of base plans that the variant decides."""
        return {
            name: SEARCHED_CHOICES[name].codes(base, code).astype(getattr(base, name).dtype, copy=False)
            for name, code in self.codes.items()
        }

    def values(self, base: PlanArrays) -> dict[str, Any]:
        """Return the values that the variant chooses, by column."""
        return {name: base.values_of(name)[code] for name, code in self.codes.items()}


@dataclass(frozen=True, slots=True)
class Variants:
    """The candidate values of each choice; schedules that must be played use only the ``usual`` ones."""

    values: Mapping[str, Values]
    usual: Mapping[str, Values]

    @property
    def tables(self) -> dict[str, Any]:
        """The values that arrays of such plans bring along."""
        return {CODED[name].table: values for name, values in self.values.items() if CODED[name].table}

    @property
    def all(self) -> tuple[Variant, ...]:
        """Return every combination; those that differ in the last choices are neighbours.

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
        return Variant(
            {name: (CODED[name].known or self.values[name]).index(value) for name, value in chosen.items()}
        )


def leaves_open(variant: Variant) -> bool:
    """Return true if the variant leaves the deferred choice open."""
    return DEFERRED_CHOICES not in variant.codes


def _chosen(values: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Every combination of values."""
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


def usual_variants(setting: Setting, keep: Keep) -> Variants:
    """Recomputations by name; and what a question keeps."""
    usual = _with_kept({name: choice.usual(setting) for name, choice in SEARCHED_CHOICES.items()}, keep)
    return Variants(usual, usual)


def all_variants(setting: Setting, keep: Keep) -> Variants:
    """All that the stack leaves to a plan."""
    every = _with_kept({name: choice.every(setting) for name, choice in SEARCHED_CHOICES.items()}, keep)
    return Variants(every, usual_variants(setting, keep).values)


def _with_kept(values: Mapping[str, Values], keep: Keep) -> dict[str, Values]:
    """Values, and among them what a question keeps."""
    kept = {name: (keep[CODED[name].name],) if CODED[name].name in keep else () for name in values}
    return {name: tuple(dict.fromkeys((*known, *kept[name]))) for name, known in values.items()}


def are_usual(some: Iterable[Variant], base: PlanArrays, usual: Variants) -> Bools:
    """Return the mask of variants with only usual values."""
    own = [variant.values(base) for variant in some]
    return np.array(
        [all(value in usual.values[name] for name, value in chosen.items()) for chosen in own], dtype=np.bool_
    )


def _removed(asked: ChoiceContext, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """Yield a reason and a mask of plans left: for each constraint of the question, then for each choice's rules."""
    chosen = variant.values(asked.base)
    for name, own in chosen.items():
        concerned = SEARCHED_CHOICES[name].concerns(asked.base)
        for value, wanted in asked.wishes(CODED[name].name):
            same = np.where(concerned, own == value, asked.base.values_of(name)[0] == value)
            yield because(CODED[name].name, value, wanted=wanted), same == wanted
    for name, own in chosen.items():
        yield from SEARCHED_CHOICES[name].rule(asked, own)
    for limit in asked.limits.reading((*COLUMNS_OF_BASE, *chosen)):
        if not set(limit.reads).isdisjoint(chosen):
            yield asked.limits.reason(limit), _allowed(asked, limit, variant)


def _allowed(asked: ChoiceContext, limit: StackLimit, variant: Variant) -> Bools:
    """Return the mask of base plans that a limit allows with a variant's choices, found once for equal ones."""
    key = limit, tuple((name, variant.codes[name]) for name in limit.reads if name in variant.codes)
    if key not in asked.known:
        own = variant.of(asked.base)
        table = {name: own.get(name, getattr(asked.base, name)) for name in limit.reads}
        asked.known[key] = asked.limits.allowed(limit, table, asked.base.values_of)
    return asked.known[key]


def with_every_later(plan: PlanArrays, setting: Setting) -> PlanArrays:
    """One plan with each legal value of what is chosen later, the one that it has among them."""
    values = plan.values_of(DEFERRED_CHOICES)
    plans = plan.take(np.zeros(len(values), dtype=np.int64))
    codes: dict[str, Any] = {DEFERRED_CHOICES: np.arange(len(values))}
    limits = StackLimitsOfRows(setting, plan.schedules)
    asked = ChoiceContext(plan, setting, {DEFERRED_CHOICES: values}, lambda name: (), limits)
    legal = [
        all(may.all() for _, may in SEARCHED_CHOICES[DEFERRED_CHOICES].rule(asked, value)) for value in values
    ]
    legal[int(getattr(plan, DEFERRED_CHOICES)[0])] = True
    return replace(plans, **codes).take(np.array(legal, dtype=np.bool_))


def legal_variants(
    asked: ChoiceContext, variants: Variants, rejected: Counter[str]
) -> tuple[Bools, DeferredChoice]:
    """Return the mask (variants, n) of legal variants of base plans, and their deferred choices.

    What a rule removes is counted.
    """
    open_ = np.array([leaves_open(variant) for variant in variants.all], dtype=np.bool_)
    weights = np.where(open_, len(variants.later), 1)
    legal = np.ones((len(variants.all), len(asked.base)), dtype=np.bool_)
    for row, variant, weight in zip(legal, variants.all, weights, strict=True):
        _remove(asked, variant, row, np.full(len(row), weight), rejected)
    weights = legal[open_].sum(0)
    later = np.ones((len(variants.later), len(asked.base)), dtype=np.bool_)
    for row, variant in zip(later, variants.later, strict=True):
        _remove(asked, variant, row, weights, rejected)
    legal[open_] &= later.any(0)
    return legal, DeferredChoice.open(DEFERRED_CHOICES, later)


def _remove(
    asked: ChoiceContext, variant: Variant, row: Bools, weights: NDArray[np.int64], rejected: Counter[str]
) -> None:
    """Clear base plans in ``row`` that rules forbid to a variant; each stands for as many plans as it weighs."""
    for reason, allowed in _removed(asked, variant):
        removed = int(weights[row & ~allowed].sum())
        if removed:
            rejected[reason] += removed
        row &= allowed
