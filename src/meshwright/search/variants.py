"""Variants of a plan: what it chooses beside its degrees, its schedule and its sharding.

A base plan says layout, micro-batch, schedule, experts' degrees and sharding. A variant says the rest (``varied.py``):
what runs again in the backward pass, whether sequences are cut over tp between products (sequence parallelism), in
which order ranks are numbered, what waits on the hosts. The usual variants are the recomputations that have a name of
their own, with sequence parallelism and the default order; all variants have sets of operators and what else a stack
leaves to a plan.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from meshwright.plan.arrays import PlanArrays
from meshwright.plan.coded import CODED
from meshwright.plan.setting import Setting
from meshwright.search.varied import VARIED, Asked, Bools, Values
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
        """Every combination; those that differ in the last choices stand together."""
        alone = {name: of[:1] if VARIED[name].played else of for name, of in self.values.items()}
        played = {name: of if VARIED[name].played else self.usual[name] for name, of in self.values.items()}
        chosen = (*product(*alone.values()), *product(*played.values()))
        return tuple(self._variant(some) for some in dict.fromkeys(chosen))

    def _variant(self, chosen: tuple[Any, ...]) -> Variant:
        named = zip(self.values.items(), chosen, strict=True)
        return Variant({name: (CODED[name].known or values).index(value) for (name, values), value in named})


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


def legal_variants(asked: Asked, variants: Variants, rejected: Counter[str]) -> Bools:
    """Which variants are legal for which base plans: (variants, n); what a rule removes is counted."""
    legal = np.ones((len(variants.all), len(asked.base)), dtype=np.bool_)
    for row, variant in zip(legal, variants.all, strict=True):
        for reason, allowed in _removed(asked, variant):
            removed = int((row & ~allowed).sum())
            if removed:
                rejected[reason] += removed
                row &= allowed
    return legal
