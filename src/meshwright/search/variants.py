"""Variants of a plan: what it chooses beside its degrees, its schedule and its sharding.

A base plan says layout, micro-batch, schedule, experts' degrees and sharding. A variant says the rest (``varied.py``):
what runs again in the backward pass, whether sequences are cut over tp between products (sequence parallelism), in
which order ranks are numbered, what waits on the hosts. The usual variants are the recomputations that have a name of
their own, with sequence parallelism and the default order; all variants have sets of operators and what else a stack
leaves to a plan. One choice is left open by most variants and made later (``later.py``).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.arrays import PlanArrays
from meshwright.plan.coded import CODED
from meshwright.plan.setting import Setting
from meshwright.search.later import Later
from meshwright.search.varied import LATER, VARIED, Asked, Bools, Values
from meshwright.search.wishes import Keep
from meshwright.search.wishes import asked as because


@dataclass(frozen=True, slots=True)
class Variant:
    """Codes by column, of a space's values; what has none is as the base plan has it."""

    codes: Mapping[str, int] = field(default_factory=dict)

    def of(self, base: PlanArrays) -> dict[str, Any]:
        """The columns of base plans that it decides."""
        return {
            name: VARIED[name].codes(base, code).astype(getattr(base, name).dtype, copy=False)
            for name, code in self.codes.items()
        }

    def values(self, base: PlanArrays) -> dict[str, Any]:
        """What it chooses, by column."""
        return {name: base.values_of(name)[code] for name, code in self.codes.items()}


@dataclass(frozen=True, slots=True)
class Variants:
    """What plans of a space may choose, by column; with what must be played, where they do, only ``usual`` values."""

    values: Mapping[str, Values]
    usual: Mapping[str, Values]

    @property
    def tables(self) -> dict[str, Any]:
        """The values that arrays of such plans bring along."""
        return {CODED[name].table: values for name, values in self.values.items() if CODED[name].table}

    @property
    def all(self) -> tuple[Variant, ...]:
        """Every combination; those that differ in the last choices stand together.

        Those that must be played come with usual values of what is chosen later, the others leave it open.
        """
        first = {name: of[:1] for name, of in self.values.items() if VARIED[name].played}
        cheap = {name: first.get(name, of) for name, of in self.values.items() if not VARIED[name].later}
        some = {name: of if name in first else self.usual[name] for name, of in self.values.items()}
        played = [one for one in _chosen(some) if any((one[name],) != of for name, of in first.items())]
        return tuple(self.variant(one) for one in (*_chosen(cheap), *played))

    @property
    def later(self) -> tuple[Variant, ...]:
        """What may be chosen later, each alone."""
        return tuple(
            self.variant({name: value})
            for name, of in self.values.items()
            if VARIED[name].later
            for value in of
        )

    @property
    def count(self) -> int:
        """How many there are with what is chosen later."""
        return sum(len(self.later) if leaves_open(variant) else 1 for variant in self.all)

    def variant(self, chosen: Mapping[str, Any]) -> Variant:
        """That of some values."""
        return Variant(
            {name: (CODED[name].known or self.values[name]).index(value) for name, value in chosen.items()}
        )


def leaves_open(variant: Variant) -> bool:
    """Whether its plans still choose what is chosen later."""
    return LATER not in variant.codes


def _chosen(values: Mapping[str, Values]) -> list[dict[str, Any]]:
    """Every combination of values."""
    return [dict(zip(values, some, strict=True)) for some in product(*values.values())]


def usual_variants(setting: Setting, keep: Keep) -> Variants:
    """Recomputations by name; and what a question keeps."""
    usual = _with_kept({name: choice.usual(setting) for name, choice in VARIED.items()}, keep)
    return Variants(usual, usual)


def all_variants(setting: Setting, keep: Keep) -> Variants:
    """All that the stack leaves to a plan."""
    every = _with_kept({name: choice.every(setting) for name, choice in VARIED.items()}, keep)
    return Variants(every, usual_variants(setting, keep).values)


def _with_kept(values: Mapping[str, Values], keep: Keep) -> dict[str, Values]:
    """Values, and among them what a question keeps."""
    kept = {name: (keep[CODED[name].name],) if CODED[name].name in keep else () for name in values}
    return {name: tuple(dict.fromkeys((*known, *kept[name]))) for name, known in values.items()}


def are_usual(some: Iterable[Variant], base: PlanArrays, usual: Variants) -> Bools:
    """Which of some variants of base plans are usual ones."""
    own = [variant.values(base) for variant in some]
    return np.array(
        [all(value in usual.values[name] for name, value in chosen.items()) for chosen in own], dtype=np.bool_
    )


def _removed(asked: Asked, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """What the question fixes or forbids, then the rules of each choice: reasons, and which plans they leave."""
    chosen = variant.values(asked.base)
    for name, own in chosen.items():
        concerned = VARIED[name].concerns(asked.base)
        for value, wanted in asked.wishes(CODED[name].name):
            same = np.where(concerned, own == value, asked.base.values_of(name)[0] == value)
            yield because(CODED[name].name, value, wanted=wanted), same == wanted
    for name, own in chosen.items():
        yield from VARIED[name].rule(asked, own)


def with_every_later(plan: PlanArrays, setting: Setting) -> PlanArrays:
    """One plan with each legal value of what is chosen later, the one that it has among them."""
    values = plan.values_of(LATER)
    plans = plan.take(np.zeros(len(values), dtype=np.int64))
    codes: dict[str, Any] = {LATER: np.arange(len(values))}
    asked = Asked(plan, setting, {LATER: values}, lambda name: ())
    legal = [all(may.all() for _, may in VARIED[LATER].rule(asked, value)) for value in values]
    legal[int(getattr(plan, LATER)[0])] = True
    return replace(plans, **codes).take(np.array(legal, dtype=np.bool_))


def legal_variants(asked: Asked, variants: Variants, rejected: Counter[str]) -> tuple[Bools, Later]:
    """Which variants are legal for which base plans: (variants, n), and what these may choose later.

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
    return legal, Later.open(LATER, later)


def _remove(
    asked: Asked, variant: Variant, row: Bools, weights: NDArray[np.int64], rejected: Counter[str]
) -> None:
    """Clear base plans in ``row`` that rules forbid to a variant; each stands for as many plans as it weighs."""
    for reason, allowed in _removed(asked, variant):
        removed = int(weights[row & ~allowed].sum())
        if removed:
            rejected[reason] += removed
        row &= allowed
