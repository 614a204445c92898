"""The checkpoints in a run's folder. A checkpoint gets its final name only after all of it is on disk.

====================================  ==========================================================================
name                                  what it is
====================================  ==========================================================================
``step-00000120``                     committed: the state after 120 steps
``step-00000120.unfinished``          being written or removed, or left over from a crash: unusable
``step-00000120.replaced``            the former checkpoint, kept while a new one of the same step takes its name;
                                      it counts as long as no other has the name
====================================  ==========================================================================

A crash between any two operations therefore leaves the newest committed checkpoint intact.
"""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.fsync import fsync_path

UNFINISHED, REPLACED = ".unfinished", ".replaced"
NAME = re.compile(rf"step-([0-9]{{8,18}})(?:{re.escape(REPLACED)})?")


class NoSpaceError(InputError):
    """A folder that cannot be written since its disk or quota is full; ``ranks`` found it so."""

    def __init__(self, problems: Problem | Iterable[Problem], ranks: Iterable[int] = ()) -> None:
        super().__init__(problems)
        self.ranks = tuple(ranks)


def checkpoint_name(step: int) -> str:
    """Return the folder name of the checkpoint after ``step`` steps."""
    return f"step-{step:08d}"


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the committed checkpoint with the largest step; None if there is none. Raises InputError.

    The checkpoint is not verified here: damage is reported when it is read.
    """
    found = committed(folder)
    return found[-1] if found else None


def committed(folder: Path) -> list[Path]:
    """Return all committed checkpoints in order of their steps."""
    if not folder.exists():
        return []
    with read_errors(folder):
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    steps = {int(match[1]): name for name in reversed(names) if (match := _match(name))}
    return [folder / steps[step] for step in sorted(steps)]


def step_of(path: Path) -> int | None:
    """Return the step in a checkpoint's name; None if it is not a checkpoint's name."""
    match = _match(path.name)
    return int(match[1]) if match else None


def prune_checkpoints(folder: Path, keep: int, every: int = 0) -> None:
    """Remove all but the last ``keep`` checkpoints, and what crashes have left. One rank calls it, between saves.

    Those of every ``every``-th step stay, if that is not 0.
    """
    assert keep >= 1, keep
    with write_errors(folder):
        for path in committed(folder)[:-keep]:
            if every and (step_of(path) or 0) % every == 0:
                continue
            doomed = path.with_name(path.name + UNFINISHED)
            _remove(doomed)
            os.replace(path, doomed)
        names = {path.name for path in committed(folder)}
        for path in [*folder.glob(f"step-*{UNFINISHED}"), *folder.glob(f"step-*{REPLACED}")]:
            if path.name not in names:
                _remove(path)


def begin(folder: Path, step: int) -> None:
    """Create the folder that the ranks write into. Raises InputError."""
    place = unfinished(folder, step)
    with write_errors(place):
        if not folder.exists():
            folder.mkdir(parents=True)
            fsync_path(folder.parent)
        _remove(place)
        place.mkdir()


def unfinished(folder: Path, step: int) -> Path:
    """Return the path of a checkpoint that is not committed yet."""
    return folder / (checkpoint_name(step) + UNFINISHED)


def commit(folder: Path, step: int) -> Path:
    """Give a checkpoint, whose files are all on disk, its final name. Raises InputError."""
    place, final = unfinished(folder, step), folder / checkpoint_name(step)
    former = final.with_name(final.name + REPLACED)
    with write_errors(final):
        fsync_path(place)
        if final.exists():
            _remove(former)
            os.replace(final, former)
        os.replace(place, final)
        fsync_path(folder)
        _remove(former)
    return final


def abandon(folder: Path, step: int) -> None:
    """Remove an unfinished checkpoint, ignoring errors."""
    shutil.rmtree(unfinished(folder, step), ignore_errors=True)


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's read errors inside the block into InputError."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError(
            Problem("checkpoint", in_short(path), rule, "check the path and its rights")
        ) from None


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's write errors inside the block into InputError; NoSpaceError for a full disk."""
    try:
        yield
    except OSError as error:
        rule = f"cannot be written: {error.strerror or error}"
        suggestion = "a folder of this user with room on its disk; earlier checkpoints are as they were"
        kind = NoSpaceError if error.errno in (ENOSPC, EDQUOT) else InputError
        raise kind(Problem("checkpoint", in_short(path), rule, suggestion)) from None


def in_short(path: Path) -> str:
    """Return the last two parts of a path, short enough for a message."""
    return "/".join(path.absolute().parts[-2:])


def _match(name: str) -> re.Match[str] | None:
    """Match a checkpoint's name, spelled exactly as ``checkpoint_name`` does."""
    match = NAME.fullmatch(name)
    return match if match and checkpoint_name(int(match[1])) == name.removesuffix(REPLACED) else None


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
