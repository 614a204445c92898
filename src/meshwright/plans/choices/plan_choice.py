"""One choice of a plan: its place in plan files, its codes in arrays of plans, and how a search varies it.

A code is an index into the values of its choice; the first value is the usual one.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting

Bools = NDArray[np.bool_]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class ChoiceRuleInput:
    """Input of a searched choice's rule: base plans, the setting, and the candidate values of all choices."""

    base: PlanArrays
    setting: Setting
    values: Mapping[str, Values]


Rule = Callable[[ChoiceRuleInput, Any], Iterator[tuple[str, Bools]]]
"""Yields, for a value, reasons to reject it and the mask of base plans that may have it."""


@dataclass(frozen=True, kw_only=True)
class SearchedChoice:
    """Variation of a choice in a search: its ``usual`` values, ``every`` value that a stack allows, and the ``rule``.

    Base plans that the choice does not concern have its first value. Plans with another value than the first one are
    ``played`` instead of priced by closed forms, and come with the usual values of the other choices. Lower bounds hold
    for all values of a choice that is made ``later`` (``search/space/deferred_choice.py``); there is one such choice.
    Plans with the same value of an ``outermost`` choice stand together. Of an ``alone`` choice a search has one value,
    the one that its question fixes.
    """

    usual: Callable[[Setting], Values]
    every: Callable[[Setting], Values]
    rule: Rule
    concerned: Callable[[PlanArrays], Bools] | None = None
    played: bool = False
    later: bool = False
    outermost: bool = False
    alone: bool = False

    def concerns(self, base: PlanArrays) -> Bools:
        """Return the mask of plans that the choice concerns."""
        return np.ones(len(base), dtype=np.bool_) if self.concerned is None else self.concerned(base)

    def codes(self, base: PlanArrays, code: int) -> NDArray[np.int64]:
        """Return ``code`` for the plans that the choice concerns, 0 for the others."""
        every = np.full(len(base), code, dtype=np.int64)
        return every if self.concerned is None else np.where(self.concerned(base), every, 0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A choice at ``path`` of a plan file.

    ``known``: all its values; () where each array of plans has its own. ``names`` are further values that are their own
    words, ``spellings`` others' words for some of these. A list of some ``listed`` words, in their order, is a value
    too, or of all of them in any order where a value is an ``order``. ``parse`` reads any other text, such as
    ``example``; it raises a ValueError that says what the text must be. Plans with the value ``nothing`` have no such
    choice. A choice whose last word another key has goes by its ``whole_path``. ``read`` and ``write`` convert between
    what a short plan has at its path and a value. ``searched`` is None for what base plans enumerate.
    """

    path: str
    whole_path: bool = False
    known: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    order: bool = False
    nothing: Hashable = None
    parse: Callable[[str], Hashable] | None = None
    example: str = ""
    read: Callable[[ShortPlan], Hashable] | None = None
    write: Callable[[Any], object] | None = None
    searched: SearchedChoice | None = None

    @property
    def name(self) -> str:
        """Return the choice's name for users."""
        return self.path if self.whole_path else self.path.rpartition(".")[2]

    @property
    def code_type(self) -> type[np.int64 | np.bool_]:
        """Return the type of the codes in arrays."""
        return np.bool_ if self.known == (False, True) else np.int64

    @cached_property
    def words(self) -> Mapping[str, Hashable]:
        """Values by the single words that stand for them."""
        return {format_choice(value): value for value in self.known} | {name: name for name in self.names}

    def of(self, plan: ShortPlan) -> Hashable:
        """Return the value that a plan has."""
        return self.read(plan) if self.read else attrgetter(self.path)(plan)

    def written(self, value: object) -> object:
        """Return the value as a plan holds it at the path."""
        return self.write(value) if self.write else value


def format_choice(value: object) -> str:
    """Format a value as users write it; a value with fields has a ``word``."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "word", value))
