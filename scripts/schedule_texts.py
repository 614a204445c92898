"""What the page of schedules says of each of them in words and formulas: ``schedule_texts.yaml``, read strictly.

The file has an entry for every schedule, in its order. What a formula says of lists is tested against the lists.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

from formulas import letters, number

from meshwright.plans.files.strict_types import Strict
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.files.yaml_text import read_mapping

TEXTS = Path(__file__).with_name("schedule_texts.yaml")
PASSES = ("F", "I", "W")


class Formula(Strict):
    """A figure, or the most that it comes to, where a condition holds: ``scripts/formulas.py`` reads both."""

    equals: str | None = None
    at_most: str | None = None
    where: str = ""

    @property
    def text(self) -> str:
        """The formula."""
        found = self.equals if self.equals is not None else self.at_most
        assert found is not None
        return found

    @property
    def of_ranks(self) -> bool:
        """Whether it speaks of each rank."""
        return "r" in letters(self.text)


class More(Strict):
    """Another row of figures: what is asked besides P and M."""

    unit: int | None = None
    memory_limit: float | None = None


class Text(Strict):
    """An entry of the file; ``unit`` is the usual unit of a schedule that has units."""

    what: str
    source: str
    published: str
    unit: str | None = None
    bubble: tuple[Formula, ...]
    memory: tuple[Formula, ...]
    remark: str = ""
    take: str
    leave: str
    more: tuple[More, ...] = ()


@cache
def texts() -> dict[str, Text]:
    """All entries by schedule. Raises InputError with everything that is wrong with the file."""
    return read_texts(TEXTS.read_text(encoding="utf-8"))


def read_texts(text: str) -> dict[str, Text]:
    """Entries by schedule. Raises InputError."""
    data = read_mapping(text, TEXTS.name)
    return {name: validated(Text, entry) for name, entry in data.items() if isinstance(entry, dict)}


def letters_of(
    text: Text,
    ranks: int,
    micro_batches: int,
    chunks: int,
    times: Sequence[int] = (1, 1, 1),
    unit: int | None = None,
) -> dict[str, Fraction]:
    """What the letters of a schedule's formulas stand for, r left out."""
    names = {"P": ranks, "M": micro_batches, "V": chunks, **dict(zip(PASSES, times, strict=True))}
    known = {letter: Fraction(value) for letter, value in names.items()}
    if text.unit is not None:
        known["U"] = Fraction(unit) if unit is not None else number(text.unit, known)
    return known
