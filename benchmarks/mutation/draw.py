"""Draw mutants that two trees of sources have in common.

A mutant is known by the text of its line: the line stands exactly once in the mutated packages of each tree, so that
files may move and be renamed between the trees.
"""

import random
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutation.operators import Edit, edits_of

PACKAGES = {
    "program": ("program",),
    "plans": ("plans", "plan"),
    "cost": ("cost",),
    "schedules": ("schedules", "schedule"),
    "search": ("search",),
    "runtime": ("runtime",),
}
"""Mutated packages, with the names that they have in one tree or the other."""
SHORTEST_LINE = 14


@dataclass(frozen=True)
class Mutant:
    """A line without its indentation, and the edit of it: columns are those of the line without indentation."""

    package: str
    line: str
    start: int
    end: int
    new: str

    @property
    def mutated(self) -> str:
        """The line after the edit."""
        return self.line[: self.start] + self.new + self.line[self.end :]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return asdict(self)


@dataclass(frozen=True)
class Place:
    """Where the line of a mutant stands in a tree: the file and the line's number, from 1."""

    file: Path
    number: int


def draw(trees: list[Path], count: int, seed: int) -> list[Mutant]:
    """Draw mutants from those that all trees have, the packages in turn."""
    in_each = [_mutants(tree) for tree in trees]
    common = set(in_each[0]).intersection(*in_each[1:])
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(common, key=lambda one: (one.package, one.line, one.start, one.new)):
        by_package[mutant.package].append(mutant)
    rng = random.Random(seed)
    for package in PACKAGES:
        rng.shuffle(by_package[package])
    return [by_package[list(PACKAGES)[i % len(PACKAGES)]].pop() for i in range(count)]


def place_of(mutant: Mutant, tree: Path) -> Place:
    """Return where the line of a mutant stands."""
    (place,) = _lines(tree, mutant.package)[mutant.line]
    return place


def _mutants(tree: Path) -> list[Mutant]:
    found = []
    for package in PACKAGES:
        once = {line: places[0] for line, places in _lines(tree, package).items() if len(places) == 1}
        by_file: dict[Path, list[tuple[str, int]]] = defaultdict(list)
        for line, place in once.items():
            by_file[place.file].append((line, place.number))
        for file, lines in by_file.items():
            edits: dict[int, list[Edit]] = defaultdict(list)
            for edit in edits_of(file.read_text(encoding="utf-8")):
                edits[edit.line].append(edit)
            source = file.read_text(encoding="utf-8").splitlines()
            for line, number in lines:
                indent = len(source[number - 1]) - len(source[number - 1].lstrip())
                found += [
                    Mutant(package, line, edit.start - indent, edit.end - indent, edit.new)
                    for edit in edits[number]
                    if len(line) >= SHORTEST_LINE
                ]
    return found


def _lines(tree: Path, package: str) -> dict[str, list[Place]]:
    """Places of every line of a package, without indentation."""
    places: dict[str, list[Place]] = defaultdict(list)
    for name in PACKAGES[package]:
        for file in sorted((tree / "src" / "meshwright" / name).rglob("*.py")):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                places[line.strip()].append(Place(file, number))
    return places
