"""A folder that is made once, whoever asks for it at the same time.

It is made under another name beside its place and renamed when all of it is on disk: what is there is whole. Processes
that want the same folder queue at a lock file (``flock``), which the kernel gives back when its holder dies; the first
one makes it. Where the file system knows no locks, several may make it and the first rename counts.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from meshwright.errors import InputError, Problem


def built_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """``folder``; ``build`` is called to fill it where it is not there. Raises InputError, and what build raises."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _queue(folder.with_name(folder.name + ".lock")) as alone:
            if not folder.is_dir():
                if alone:
                    _clear(folder)
                _build(folder, build)
    except OSError as error:
        reason = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem("cache", str(folder), reason, "name another folder, or make room")) from None
    return folder


@contextmanager
def _queue(lock: Path) -> Iterator[bool]:
    """Wait for one's turn. Yields whether nobody else can be at work."""
    with open(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True


def _clear(folder: Path) -> None:
    """Remove what builders left that were killed."""
    for left in folder.parent.glob(_prefix(folder) + "*"):
        shutil.rmtree(left, ignore_errors=True)


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    making = Path(tempfile.mkdtemp(prefix=_prefix(folder), dir=folder.parent))
    try:
        build(making)
        _to_disk(making)
        try:
            making.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another one was quicker: theirs is as good
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _prefix(folder: Path) -> str:
    return f".{folder.name}."


def _to_disk(folder: Path) -> None:
    """Contents before the name: a folder with its name is whole after a crash too. Others may read it."""
    folder.chmod(0o755)
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
