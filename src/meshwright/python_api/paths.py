"""Paths as the functions of the Python interface take them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from meshwright.cli.terminal.output import check_writable

PathLike = str | Path


def paths_of(given: PathLike | Iterable[PathLike]) -> tuple[PathLike, ...]:
    """Return paths of an option that can be given several times; one by itself is one path."""
    return (given,) if isinstance(given, str | Path) else tuple(given)


def path_of(path: PathLike | None) -> Path | None:
    """Return a path, if there is one."""
    return None if path is None else Path(path)


def text_of(path: PathLike | None) -> str | None:
    """Return a path as text, if there is one."""
    return None if path is None else str(path)


def check_all(files: Mapping[str, PathLike | None]) -> None:
    """Raise InputError for a file that cannot be written, before any work is done for it."""
    for option, path in files.items():
        if path:
            check_writable(Path(path), option)
