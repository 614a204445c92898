"""One table for each framework's options: option, plan field and value, written by exports and read by imports.

A row ties one option (``--seq-length``, or the dotted key ``optimizer.optimizer`` of a file in sections) to one fact by
its path (``frameworks/importing/imported_file.py``); ``plan_facts`` gives the facts of a plan to write. An option that
depends on several facts has a row with a function of them, and code of the importer reads it back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.frameworks.importing.command_line import CommandLine
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.option_names import Option, option_names

Facts = Mapping[str, Any]
"""Facts of a plan by path."""
Condition = Callable[[Facts], bool]
LEFT_OUT = object()


OptionValues = CommandLine | ConfigValues
"""The options that a file gives, on a command line or in sections."""


@dataclass(frozen=True, slots=True)
class Codec:
    """The values of an option: ``write`` takes a fact's value, ``read`` returns it, or None for no fact.

    ``known`` are the values of the fact, where they are not the whole numbers.
    """

    write: Callable[[Any], Any]
    read: Callable[[OptionValues, str], Any]
    known: tuple[Any, ...] = ()


NUMBER = Codec(lambda number: number, lambda values, name: values.number(name))
FLAG = Codec(bool, lambda values, name: values.truth(name), (True, False))
OFF_FLAG = Codec(lambda on: not on, lambda values, name: not values.truth(name), (True, False))


def one_of(names: Mapping[Any, Any]) -> Codec:
    """Return the codec of a one-to-one table: value of the fact, value of the option."""

    def read(values: OptionValues, name: str) -> Any:
        said = values.get(name)
        return next((ours for ours, theirs in names.items() if theirs == said), None)

    return Codec(names.__getitem__, read, tuple(names))


def always(facts: Facts) -> bool:
    """Return true: the option is written wherever the plan has the fact."""
    return True


def never(facts: Facts) -> bool:
    """Return false: imports read the option, and exports leave it to the model or to a newer name."""
    return False


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option and the fact that it says.

    ``default`` is the framework's own value of the fact, which holds where a file leaves the option out. ``when`` says
    for which plans the option is written; the others write ``otherwise``, where a recipe may have set it before.
    """

    option: str
    path: str
    codec: Codec = NUMBER
    default: Any = None
    when: Condition = always
    otherwise: Any = LEFT_OUT


@dataclass(frozen=True, slots=True)
class ComputedRow:
    """One option whose value several facts decide; ``value`` None leaves it to the framework."""

    option: str
    value: Callable[[Facts], Any]
    when: Condition = always


Row = OptionRow | ComputedRow


def constant(option: str, value: Any, when: Condition = always) -> ComputedRow:
    """Return the row of an option that has one value in every export."""
    return ComputedRow(option, lambda facts: value, when)


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The options of one release of a target, in the order in which they are written.

    ``others`` names a list of what only other releases of the target accept, ``OTHERS-other-releases.txt``.
    """

    target: str
    release: str
    rows: tuple[Row, ...]
    others: str = ""

    @property
    def full_name(self) -> str:
        """Target and release."""
        return f"{self.target} {self.release}"

    @property
    def names(self) -> frozenset[str]:
        """Every option that the release accepts."""
        return option_names(self.target, self.release)

    @property
    def other_names(self) -> frozenset[str]:
        """Options that only other releases accept."""
        return option_names(self.others, "other-releases") if self.others else frozenset()


def written_values(rows: Iterable[Row], facts: Facts) -> dict[str, Any]:
    """Return what the rows write for a plan, by option."""
    found: dict[str, Any] = {}
    for row in rows:
        if isinstance(row, ComputedRow) and row.when(facts):
            found[row.option] = row.value(facts)
        elif isinstance(row, OptionRow) and row.path in facts:
            value = row.codec.write(facts[row.path]) if row.when(facts) else row.otherwise
            found |= {} if value is LEFT_OUT else {row.option: value}
    return found


def written_options(rows: Iterable[Row], facts: Facts) -> list[Option]:
    """Return what the rows write for a plan as words of a command line, without what is off or left open."""
    values = written_values(rows, facts)
    return [
        (name, *_words(value)) for name, value in values.items() if value is not None and value is not False
    ]


def _words(value: Any) -> tuple[str, ...]:
    if value is True:
        return ()
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


def read_facts(rows: Iterable[Row], values: OptionValues) -> dict[str, Fact]:
    """Return the facts that a file states, and the defaults of the options that it leaves out.

    Of several options for one fact the last counts.
    """
    found: dict[str, Fact] = {}
    for row in rows:
        if isinstance(row, ComputedRow):
            continue
        if row.option in values:
            value = row.codec.read(values, row.option)
            found |= {} if value is None else {row.path: values.fact(row.option, value)}
        elif row.default is not None:
            words = values.left_out(row.option, row.codec.write(row.default))
            found[row.path] = Fact(row.default, words)
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted name as a tree of sections, sequences as lists."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = list(value) if isinstance(value, tuple) else value
    return tree
