"""Parse the cells of a table of runs: text to numbers, flags and words within plausible ranges.

A reader returns the value of a cell that is not empty, or raises ValueError with the rule that the text breaks.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from math import isfinite
from typing import Any, get_args

from meshwright.cluster.catalog import device_id
from meshwright.errors import InputError
from meshwright.plans.forms.short import Axis, Recompute, RecomputeName
from meshwright.plans.forms.spellings import RECOMPUTES, our_word
from meshwright.schedules.generators import SCHEDULES

Reader = Callable[[str], Any]

FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
SCHEDULE_SPELLINGS = {"none": "1f1b", "zb-1p": "zb-h1", "zb-2p": "zb-h2"}
OPERATORS = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")
REMARK = re.compile(r"\([^)]*\)?")
REPEATED = re.compile(r"([0-9]{1,4})(?:\*([0-9]{1,5}))?")
MAX_STAGES = 2**14
AXES: tuple[Axis, ...] = get_args(Axis)
MOST_CHARACTERS = 40
RECOMPUTE_NAMES: tuple[RecomputeName, ...] = get_args(RecomputeName)
NEAR = 0.5
"""How like a known word (0 to 1) an unknown one must be to be taken for it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline schedule by our name, and the place of the vocabulary if its name gives one."""

    name: str
    vocabulary: str


def whole_number(low: int, high: int) -> Reader:
    """Return a reader of whole numbers; ``8.0`` is one, as spreadsheets write them."""

    def read(text: str) -> int:
        value = _float(text)
        if value is None or not low <= value <= high or value != int(value):
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


def positive(high: float) -> Reader:
    """Return a reader of numbers above zero."""

    def read(text: str) -> float:
        value = _float(text)
        if value is None or not 0 < value <= high:
            raise ValueError(f"must be a number above 0, up to {high:g}")
        return value

    return read


def one_of(words: Iterable[str] | Mapping[str, Any]) -> Reader:
    """Return a reader of words, ignoring case; a mapping also translates them."""
    known = dict(words) if isinstance(words, Mapping) else {word: word for word in words}

    def read(text: str) -> Any:
        if text.lower() not in known:
            raise ValueError("must be one of " + ", ".join(known))
        return known[text.lower()]

    return read


@dataclass(frozen=True, slots=True)
class Guess:
    """A value that stands for a word that nobody knows, and a remark that says so."""

    value: Any
    remark: str


def nearest_of(words: Mapping[str, Any]) -> Reader:
    """Return a reader of words, ignoring case, that takes the nearest known one for an unknown word.

    A word that is like none of them counts as an empty cell.
    """

    def read(text: str) -> Any:
        if text.lower() in words:
            return words[text.lower()]
        (near,) = get_close_matches(text.lower(), words, 1, NEAR) or (None,)
        taken = "as not given" if near is None else f"as {near}"
        return Guess(None if near is None else words[near], f"is unknown and taken {taken}")

    return read


def device(text: str) -> str:
    """Return the id of a device under any known spelling."""
    try:
        return device_id(text)
    except InputError as error:
        rule = f"{error.problems[0].rule}; `calibrate --on CLUSTER` also takes that cluster's"
        raise ValueError(rule) from None


def device_of(own: Iterable[str]) -> Reader:
    """Return a reader of devices that also knows the user's own device ids."""
    known = {name.lower(): name for name in own}

    def read(text: str) -> str:
        return known.get(text.lower()) or device(text)

    return read


def schedule(text: str) -> Schedule | Guess:
    """Parse a schedule: ``zb-2p (remark)`` is zb-h2; ``1f1b+vocab-1`` is 1f1b with the vocabulary spread."""
    name, _, vocabulary = REMARK.sub("", text.lower()).strip().partition("+")
    known = nearest_of({one: one for one in SCHEDULES} | SCHEDULE_SPELLINGS)(name.strip())
    if isinstance(known, Guess):
        found = None if known.value is None else Schedule(known.value, vocabulary.strip())
        return Guess(found, known.remark)
    return Schedule(known, vocabulary.strip())


def synchronous_norm(text: str) -> bool | None:
    """Return True if a schedule's remark says that the gradient norm is synchronous; None if it does not."""
    return True if any("synchronous" in remark for remark in REMARK.findall(text.lower())) else None


def recompute(text: str) -> Recompute | Guess:
    """Parse ``none``, ``selective``, ``full``, or names of operators separated by spaces, commas or semicolons."""
    whole = our_word(text, RECOMPUTES).lower()
    if whole in RECOMPUTE_NAMES:
        return whole
    names = tuple(dict.fromkeys(re.split(r"[\s,;+]+", whole.strip(" ,;+[]"))))
    if set(names) <= set(OPERATORS):
        return names  # type: ignore[return-value]
    if len(names) == 1:
        return nearest_of({name: name for name in RECOMPUTE_NAMES})(names[0])
    known = tuple(name for name in names if name in OPERATORS)
    left = ", ".join(name for name in names if name not in OPERATORS)
    return Guess(known or None, f"has operators that are unknown and left out: {left}")


def stage_layers(text: str) -> tuple[int, ...]:
    """Parse layers of every stage in order, separated by spaces: ``3 4*6 3`` is 3, six times 4, and 3."""
    runs = [REPEATED.fullmatch(word) for word in text.split()]
    times = [int(run[2] or 1) if run else 0 for run in runs]
    if not runs or 0 in times or sum(times) > MAX_STAGES:
        raise ValueError(f"must be layers of up to {MAX_STAGES} stages, such as 3 4*6 3")
    return tuple(int(run[1]) for run, many in zip(runs, times, strict=True) if run for _ in range(many))


def stage_layers_text(counts: Iterable[int]) -> str:
    """Format the cell that ``stage_layers`` reads."""
    runs = [(count, len(list(same))) for count, same in groupby(counts)]
    return " ".join(f"{count}*{times}" if times > 1 else f"{count}" for count, times in runs)


def rank_order(text: str) -> tuple[Axis, ...]:
    """Parse every axis once, the fastest varying rank first, separated by spaces or commas."""
    axes = tuple(re.split(r"[\s,]+", text.strip()))
    if sorted(axes) != sorted(AXES):
        raise ValueError("must name each of " + ", ".join(AXES) + " once")
    return axes  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Cells:
    """Values by name (None for an empty cell), the problems of the others, and remarks on words that are guessed."""

    values: dict[str, Any]
    wrong: list[str]
    remarks: list[str]


def read_cells(texts: Iterable[str], readers: Mapping[str, Reader]) -> Cells:
    """Read every cell by the reader of its column."""
    values: dict[str, Any] = {}
    wrong, remarks = [], []
    for (name, read), text in zip(readers.items(), texts, strict=True):
        try:
            value = read(text.strip()) if text.strip() else None
        except ValueError as error:
            wrong.append(f"{name} = {_shortened(text)!r}: {error}")
            continue
        if isinstance(value, Guess):
            remarks.append(f"{name} = {_shortened(text)!r} {value.remark}")
            value = value.value
        values[name] = value
    return Cells(values, wrong, remarks)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _float(text: str) -> float | None:
    """Return a finite number; None for anything else, including Python's own spellings (``1_000``)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and "_" not in text else None
