"""Keys of torchtitan's job files (TOML, releases 0.1.0 to 0.2.2) by the names of the last release that read them.

``torchtitan-0.1.0.txt`` and ``torchtitan-0.2.2.txt`` list what the classes of the two wheels accept
(``torchtitan/config_manager.py`` and ``torchtitan/config/job_config.py``), ``torchtitan-spellings.csv`` what a key
became and the last release that has the old name. Release 0.1.0 ignores a key that it does not know, 0.2.2 refuses it.
"""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from meshwright.errors import Problem, near_names
from meshwright.frameworks.importing.config_values import shown
from meshwright.frameworks.importing.imported_file import UnmappedOption
from meshwright.frameworks.nested_keys import is_known, nested_keys, unknown_keys
from meshwright.frameworks.option_names import option_names

RELEASES = ("0.1.0", "0.2.2")
DEFAULT = "(the default)"


class Given(NamedTuple):
    """A value of a job file and the key as the file spells it; a default where the file leaves it out."""

    value: Any
    key: str
    stated: bool = True

    @property
    def text(self) -> str:
        """The value as text."""
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)

    @property
    def words(self) -> str:
        """Key and value as the other formats show them."""
        return f"{self.key} {self.text[:60]}" + ("" if self.stated else f" {DEFAULT}")


@cache
def renamed_keys() -> Mapping[str, str]:
    """Return the newest name of each key that was renamed."""
    table = files("meshwright.frameworks.torchtitan").joinpath("torchtitan-spellings.csv")
    rows = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    return {row["key"]: row["now"] for row in rows}


@cache
def known_keys() -> frozenset[str]:
    """Return every key of the releases, sections by themselves too."""
    return frozenset().union(*(option_names("torchtitan", release) for release in RELEASES), renamed_keys())


def likely_release(data: Mapping[str, Any]) -> str:
    """Return the release that knows most keys of the file; the newer one of two."""

    def known(release: str) -> int:
        names = option_names("torchtitan", release)
        return sum(is_known(path, names) for path, _ in nested_keys(data))

    return max(reversed(RELEASES), key=known)


def by_newest_name(data: Mapping[str, Any], problems: list[Problem]) -> dict[str, Given]:
    """Return the known values by the newest names of their keys; of two spellings the newer one counts."""
    found: dict[str, Given] = {}
    plain = [
        Given(value, ".".join(path))
        for path, value in nested_keys(data)
        if is_known(path, known_keys()) and not isinstance(value, Mapping)
    ]
    for given in sorted(plain, key=lambda given: given.key not in renamed_keys()):
        name = renamed_keys().get(given.key, given.key)
        if name in found and found[name].value != given.value:
            older = found[name]
            rule = f"is an older name of {given.key}, which is {shown(given.value)}: that is read"
            problems.append(Problem(older.key, shown(older.value), rule, "leave it out", "warning"))
        found[name] = given
    return found


def wrong_sections(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield sections that are values, and values that are sections."""
    sections = {name.rpartition(".")[0] for name in known_keys()} - {""}
    for path, value in nested_keys(data):
        name = ".".join(path)
        if is_known(path, known_keys()) and isinstance(value, Mapping) != (name in sections):
            rule = "must be a section" if name in sections else "is no section but one value"
            hint = f"[{name}]" if name in sections else f"{path[-1]} = …"
            yield Problem(name, shown(value), rule, hint)


def unknown_options(data: Mapping[str, Any]) -> Iterator[UnmappedOption]:
    """Yield the keys that no release knows."""
    for path, value in unknown_keys(data, known_keys()):
        name = ".".join(path)
        near = near_names(name, sorted(known_keys()), alike=0.7)
        why = f"no key of torchtitan {RELEASES[0]} to {RELEASES[1]}"
        why += f"; did you mean {' or '.join(near)}?" if near else ""
        yield UnmappedOption(name[:200], str(shown(value))[:80], why)
