"""A space of legal plans: base plans, their variants, and what plans choose later (``deferred_choice.py``).

Variants multiply base plans without being written out: most plans are only counted and bounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import SEQUENCES, PlanArrays
from meshwright.search.space.choices import DEFERRED_CHOICE
from meshwright.search.space.deferred_choice import DeferredChoice
from meshwright.search.space.variants import Variant, leaves_open

UNUSUAL = "unusual variants of a schedule without a closed form"

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Space:
    """Legal plans: variant v of base plan i where ``legal[v, i]``; the raw space's size, and what each rule removed.

    Of a variant that leaves it open there are as many plans as ``later`` has values for its base plan.
    """

    base: PlanArrays
    variants: tuple[Variant, ...]
    legal: NDArray[np.bool_]
    later: DeferredChoice
    considered: int
    rejected: Mapping[str, int]

    @classmethod
    def of(cls, plans: PlanArrays) -> "Space":
        """Return a space that holds only these plans, unchanged."""
        later = DeferredChoice.settled(
            DEFERRED_CHOICE, plans.columns[DEFERRED_CHOICE], len(plans.values[DEFERRED_CHOICE])
        )
        return cls(plans, (Variant(),), np.ones((1, len(plans)), dtype=np.bool_), later, len(plans), {})

    def __len__(self) -> int:
        return self.count(self.legal)

    def count(self, cells: NDArray[np.bool_]) -> int:
        """Plans of a mask, with what they may choose later: (variants, n)."""
        return sum(self.count_of(code, row) for code, row in enumerate(cells))

    def count_of(self, variant: int, rows: NDArray[np.bool_]) -> int:
        """Plans of base plans of one variant: (n,)."""
        open_ = leaves_open(self.variants[variant])
        return int(self.later.counts[rows].sum() if open_ else rows.sum())

    def every(self, variants: Ints, rows: Ints) -> "ExpandedPlans":
        """All plans of variants of base plans, in their order."""
        open_ = self._open[variants]
        places, codes = self.later.of(rows, open_)
        slower = self.later.slower[codes, rows[places]] & open_[places]
        return ExpandedPlans(places, self._written(variants[places], rows[places], codes), slower)

    def _written(self, variants: Ints, rows: Ints, later: Ints) -> PlanArrays:
        plans = self.base.take(rows)
        columns = {self.later.column: later.copy()}
        for code in np.unique(variants):
            mine = variants == code
            for name, values in self.variants[code].of(plans.take(mine)).items():
                columns.setdefault(name, plans.columns[name].copy())[mine] = values
        return plans.with_columns(columns)

    def where(self, chosen: Ints | NDArray[np.bool_]) -> "Space":
        """Return the space with the selected base plans only: rows or a mask."""
        return replace(
            self, base=self.base.take(chosen), legal=self.legal[:, chosen], later=self.later.take(chosen)
        )

    def rows_of(self, devices: int, sequences: int) -> NDArray[np.bool_]:
        """Return the mask of base plans of one of several questions, by its devices and sequences of a step."""
        rows = self.base.devices == devices
        return rows & (self.base.columns[SEQUENCES] == sequences) if SEQUENCES in self.base.columns else rows

    def of_one(self, rows: Ints | NDArray[np.bool_]) -> "Space":
        """Return the base plans of one of several questions, with the counts of all questions."""
        own = self.where(rows)
        return replace(own, base=replace(own.base, several_sizes=False))

    def only(self, chosen: NDArray[np.bool_]) -> "Space":
        """Return the space with the plans of a mask only: (variants, n)."""
        legal = self.legal & chosen
        rows, used = np.asarray(legal.any(axis=0)), np.flatnonzero(legal.any(axis=1))
        variants = tuple(self.variants[code] for code in used)
        return replace(self, legal=legal[used], variants=variants).where(rows)

    def without(self, left: NDArray[np.bool_]) -> "Space":
        """Return the space without the plans of a mask: (variants, n)."""
        return replace(self, legal=self.legal & ~left)._without_others(len(self))

    def choosing(self, codes: NDArray[np.bool_]) -> "Space":
        """Return the space with only these codes of the deferred choice: (values,) or (values, n)."""
        later = self.later.among(codes)
        legal = self.legal & ((later.counts > 0) | ~self._open[:, None])
        return replace(self, legal=legal, later=later)._without_others(len(self))

    def _without_others(self, before: int) -> "Space":
        """With what is left out counted; there were so many plans before."""
        unsearched = before - len(self)
        if not unsearched:
            return self
        return replace(self, rejected={**self.rejected, UNUSUAL: self.rejected.get(UNUSUAL, 0) + unsearched})

    @property
    def _open(self) -> NDArray[np.bool_]:
        """Variants that leave open what is chosen later."""
        return np.array([leaves_open(variant) for variant in self.variants], dtype=np.bool_)

    @cached_property
    def plans(self) -> PlanArrays:
        """All legal plans, written out."""
        return self.every(*np.nonzero(self.legal)).plans


@dataclass(frozen=True)
class ExpandedPlans:
    """Plans with all that they may choose later: ``of`` which cell each is, ascending, and which are ``slower``."""

    of: Ints
    plans: PlanArrays
    slower: NDArray[np.bool_]
