"""Find the files that ``--data`` names, in a fixed order.

A folder stands for all files below it whose suffix is in ``FORMS``, in the order of their paths; links to folders are
not followed, and names that begin with a dot are skipped. A file that is named itself is read as text unless ``FORMS``
has its suffix. The order of the command line is kept.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from meshwright.errors import InputError, Problem

Form = Literal["text", "json-lines", "numpy", "binary"]

FORMS: dict[str, Form] = {".txt": "text", ".jsonl": "json-lines", ".npy": "numpy", ".bin": "binary"}
READY: frozenset[Form] = frozenset({"numpy", "binary"})
"""Forms that hold tokens already."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A regular file and its form."""

    path: Path
    form: Form

    @property
    def ready(self) -> bool:
        """True if the file holds tokens already."""
        return self.form in READY


def find_files(paths: Sequence[str | Path]) -> tuple[DataFile, ...]:
    """Return the files that ``paths``, files or folders, stand for. Raises InputError with all problems."""
    found = [item for path in paths for item in _find(Path(path))]
    problems = [item for item in found if isinstance(item, Problem)]
    files = tuple(item for item in found if isinstance(item, DataFile))
    names = Counter(os.path.realpath(file.path) for file in files)
    problems += [
        Problem("data", name, f"is named {count} times: its tokens would be repeated", "name it once")
        for name, count in names.items()
        if count > 1
    ]
    if not paths:
        problems.append(Problem("data", [], "names no file", "name a text file or a folder of them"))
    if problems:
        raise InputError(problems)
    return files


def unreadable(path: Path, error: Exception, field: str = "data") -> Problem:
    """Return the problem of a file that the operating system cannot read."""
    reason = getattr(error, "strerror", None) or str(error)
    return Problem(field, str(path), f"cannot be read: {reason}", "check the path and its rights")


def _find(path: Path) -> Iterator[DataFile | Problem]:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        yield unreadable(path, error)
        return
    if stat.S_ISDIR(mode):
        yield from _below(path)
    elif stat.S_ISREG(mode):
        yield DataFile(path, FORMS.get(path.suffix.lower(), "text"))
    else:
        yield Problem("data", str(path), "is neither a regular file nor a folder", "name a file")


def _below(folder: Path) -> Iterator[DataFile | Problem]:
    """Yield the files of known forms below a folder; a folder that cannot be listed is a problem."""
    unlisted: list[OSError] = []
    found = []
    for place, folders, names in os.walk(folder, onerror=unlisted.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = [Path(place, name) for name in names if not name.startswith(".")]
        found += [path for path in inside if path.suffix.lower() in FORMS and path.is_file()]
    yield from (unreadable(Path(error.filename), error) for error in unlisted)
    if not found and not unlisted:
        yield Problem("data", str(folder), "holds no file that ends in " + ", ".join(FORMS), "name the files")
    yield from (DataFile(path, FORMS[path.suffix.lower()]) for path in sorted(found))
