"""The checkpoints in a run's folder. A checkpoint has its name when all of it is on disk, and never before.

====================================  ==========================================================================
name                                  what it is
====================================  ==========================================================================
``step-00000120``                     committed: the state after 120 steps
``step-00000120.unfinished``          being written or removed, or left so by a crash: of no use
``step-00000120.replaced``            the former one, while a new one of the same step takes its name; it counts as
                                      long as no other has the name
====================================  ==========================================================================

So a crash between any two operations leaves the newest committed checkpoint as it was.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.durable import settle

UNFINISHED, REPLACED = ".unfinished", ".replaced"
NAME = re.compile(rf"step-([0-9]{{8,18}})(?:{re.escape(REPLACED)})?")


def checkpoint_name(step: int) -> str:
    """What the checkpoint after so many steps is called."""
    return f"step-{step:08d}"


def latest_checkpoint(folder: Path) -> Path | None:
    """The committed checkpoint of the largest step; None where there is none. Raises InputError.

    It is not checked here: one that was damaged later is refused by name when it is read.
    """
    found = committed(folder)
    return found[-1] if found else None


def committed(folder: Path) -> list[Path]:
    """All checkpoints that were committed, in the order of their steps."""
    if not folder.exists():
        return []
    with read_errors(folder):
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    steps = {int(match[1]): name for name in reversed(names) if (match := _match(name))}
    return [folder / steps[step] for step in sorted(steps)]


def step_of(path: Path) -> int | None:
    """The step that a checkpoint's name says; None where it has another name."""
    match = _match(path.name)
    return int(match[1]) if match else None


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the last ``keep`` checkpoints, and what crashes have left. One rank does this, between saves."""
    assert keep >= 1, keep
    with write_errors(folder):
        for path in committed(folder)[:-keep]:
            doomed = path.with_name(path.name + UNFINISHED)
            _remove(doomed)
            os.replace(path, doomed)
        names = {path.name for path in committed(folder)}
        for path in [*folder.glob(f"step-*{UNFINISHED}"), *folder.glob(f"step-*{REPLACED}")]:
            if path.name not in names:
                _remove(path)


def begin(folder: Path, step: int) -> None:
    """Make the place where the ranks write. Raises InputError."""
    place = unfinished(folder, step)
    with write_errors(place):
        if not folder.exists():
            folder.mkdir(parents=True)
            settle(folder.parent)
        _remove(place)
        place.mkdir()


def unfinished(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies until it is committed."""
    return folder / (checkpoint_name(step) + UNFINISHED)


def commit(folder: Path, step: int) -> Path:
    """Give a checkpoint, whose files are on disk, its name. Raises InputError."""
    place, final = unfinished(folder, step), folder / checkpoint_name(step)
    former = final.with_name(final.name + REPLACED)
    with write_errors(final):
        settle(place)
        if final.exists():
            _remove(former)
            os.replace(final, former)
        os.replace(place, final)
        settle(folder)
        _remove(former)
    return final


def abandon(folder: Path, step: int) -> None:
    """Remove what could not be finished, as far as that is possible."""
    shutil.rmtree(unfinished(folder, step), ignore_errors=True)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system inside as InputError."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError(
            Problem("checkpoint", in_short(path), rule, "check the path and its rights")
        ) from None


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Errors of the operating system inside as InputError."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror or error}"
        suggestion = "a folder of this user with room on its disk; earlier checkpoints are as they were"
        raise InputError(Problem("checkpoint", in_short(path), rule, suggestion)) from None


def in_short(path: Path) -> str:
    """The end of a path, which messages can show in full."""
    return "/".join(path.absolute().parts[-2:])


def _match(name: str) -> re.Match[str] | None:
    """The match of a name as we spell it: no more zeros than needed."""
    match = NAME.fullmatch(name)
    return match if match and checkpoint_name(int(match[1])) == name.removesuffix(REPLACED) else None


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
