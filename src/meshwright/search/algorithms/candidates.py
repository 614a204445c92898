"""The candidates of a search: plans that can fit and whose lower bounds may still answer a question.

Plans are variants of base plans, and never written out here: bounds come one variant after the other, as a row of
seconds for all base plans. Of what is chosen later (``search/space/deferred_choice.py``) bounds hold for every
value, and no question here asks; of the likely best plans its quickest values are evaluated. What a question takes
for enough is known for each value of each choice; a plan's is the largest of its values', so that of a base plan's
values serves all its variants.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import Distinct, distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.search.algorithms.exhaustive import Floats
from meshwright.search.choice_reasons import FIELDS
from meshwright.search.space.choices import SEARCHED_CHOICES
from meshwright.search.space.plan_space import Space

OF_BASE = tuple(name for name in FIELDS if name not in SEARCHED_CHOICES)
OF_VARIANTS = tuple(name for name, choice in SEARCHED_CHOICES.items() if not choice.later)
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Bounds(Protocol):
    """Lower bounds of one variant of every base plan."""

    @property
    def step_s(self) -> Floats:
        """Seconds of a step."""
        ...

    @property
    def total_bytes(self) -> Floats:
        """Bytes on the worst device."""
        ...


SpaceBounds = Callable[[Space], Iterable[Bounds]]
"""Bounds of each variant of a space, in their order."""


@dataclass(frozen=True)
class Chosen:
    """Plans of a space: ``variants[j]`` of base plan ``rows[j]``."""

    variants: Ints
    rows: Ints

    def take(self, which: Ints | Bools) -> "Chosen":
        """Return the selected rows."""
        return Chosen(self.variants[which], self.rows[which])


@dataclass
class _Values:
    """The values of one choice of base plans, and the best time of each so far."""

    name: str
    column: Ints
    equal: Distinct = field(init=False)
    best: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.equal = distinct([self.column])
        self.best = np.full(len(self.equal.first), np.inf)

    @property
    def values(self) -> Sequence[int]:
        """The values, in their order."""
        return [int(value) for value in self.column[self.equal.first]]


class OpenCandidates:
    """Bounds of all plans that can fit; what is enough follows from what has been evaluated."""

    def __init__(self, space: Space, bounds: SpaceBounds, usable_bytes: float) -> None:
        self.of_variants = {name: np.full(len(space.base.values[name]), np.inf) for name in OF_VARIANTS}
        self.floors = np.full(space.legal.shape, np.inf, dtype=np.float32)
        self.least_bytes, self.overfull = np.inf, 0
        self.overfull_values: dict[str, dict[int, float]] = {name: {} for name in FIELDS}
        self._look_at(space)
        largest = np.full(len(space.base), np.inf)
        for code, found in enumerate(bounds(space)):
            legal = space.legal[code]
            fits = legal & (found.total_bytes <= usable_bytes)
            self.floors[code, fits] = np.nextafter(found.step_s[fits].astype(np.float32), np.float32(0))
            over = np.where(legal & ~fits, found.total_bytes, np.inf)
            self.overfull += space.count_of(code, legal & ~fits)
            self.least_bytes = min(self.least_bytes, float(found.total_bytes[legal].min(initial=np.inf)))
            np.minimum(largest, over, out=largest)
            self._note_overfull(code, over)
        for values in self.base:
            least = np.full(len(values.best), np.inf)
            np.minimum.at(least, values.equal.inverse, largest)
            self.overfull_values[values.name] = _finite(zip(values.values, least.tolist(), strict=True))
        left = np.asarray(np.isfinite(self.floors).any(axis=0))
        self.floors = self.floors[:, left]
        self._look_at(space.where(left))

    def _look_at(self, space: Space) -> None:
        """Go on with these base plans."""
        self.space, base = space, space.base
        self.base = [_Values(name, getattr(base, name)) for name in OF_BASE]
        concerned = {name: SEARCHED_CHOICES[name].concerned for name in OF_VARIANTS}
        self.concerned = {name: of(base) for name, of in concerned.items() if of is not None}

    @property
    def fitting(self) -> int:
        """Count the plans that can fit."""
        return self.space.count(np.isfinite(self.floors))

    def _note_overfull(self, code: int, over: Floats) -> None:
        """Record the least bytes of plans that cannot fit, by the values of a variant."""
        for name, value, rows in self._chosen(code):
            known = self.overfull_values[name]
            least = float(over[rows].min(initial=np.inf))
            known |= _finite([(value, min(least, known.get(value, np.inf)))])

    def _chosen(self, code: int) -> Iterator[tuple[str, int, Bools | slice]]:
        """Yield each choice of a variant with its code and the base plans that have it: a mask, or all."""
        for name, value in self.space.variants[code].codes.items():
            if name in self.concerned:
                yield name, value, self.concerned[name]
                yield name, 0, ~self.concerned[name]
            elif name in OF_VARIANTS:
                yield name, value, slice(None)

    def likely_best(self, count: int, seen: Bools) -> Chosen:
        """For each value that nothing fits yet, the ``count`` plans with the least bounds that were not seen."""
        floors = np.where(seen, np.float32(np.inf), self.floors)
        least = floors.min(0, initial=np.inf)
        ordered = np.argsort(least, kind="stable")[: int(np.isfinite(least).sum())]
        chosen = np.zeros(floors.shape, dtype=np.bool_)
        for values in self.base:
            codes = values.equal.inverse[ordered]
            for value in np.flatnonzero(np.isinf(values.best)):
                rows = ordered[codes == value][:count]
                chosen[floors[:, rows].argmin(0), rows] = True
        for code, of_variant in enumerate(floors):
            if np.isinf(self._worth(code)).any() and len(of_variant):
                chosen[code, np.argpartition(of_variant, min(count, len(of_variant)) - 1)[:count]] = True
        return Chosen(*np.nonzero(chosen & np.isfinite(floors)))

    def answer(self, rows: Ints, plans: PlanArrays, seconds: Floats) -> None:
        """Update the best times with the step times of plans that fit; ``rows`` are their base plans."""
        for values in self.base:
            np.minimum.at(values.best, values.equal.inverse[rows], seconds)
        for name, best in self.of_variants.items():
            np.minimum.at(best, getattr(plans, name).astype(np.int64), seconds)

    def open(self, enough: float) -> Bools:
        """Plans whose bound is not above ``enough``, or the best plan that has one of their values: (variants, n)."""
        of_base = np.full(len(self.space.base), enough)
        for values in self.base:
            np.maximum(of_base, values.best[values.equal.inverse], out=of_base)
        result = np.zeros(self.floors.shape, dtype=np.bool_)
        for code, floors in enumerate(self.floors):
            result[code] = np.isfinite(floors) & (floors <= np.maximum(of_base, self._worth(code)))
        return result

    def _worth(self, code: int) -> Floats:
        """Return, for each base plan, the slowest of the best times of the variant's choices: (n,)."""
        worth = np.zeros(len(self.space.base))
        for name, value, rows in self._chosen(code):
            worth[rows] = np.maximum(worth[rows], self.of_variants[name][value])
        return worth


def _finite(items: Iterable[tuple[int, float]]) -> dict[int, float]:
    return {value: least for value, least in items if least < np.inf}
