"""Build a folder exactly once, even if several processes ask for it at the same time.

It is built under a temporary name next to its place and renamed when all of it is on disk, so a folder that exists is
complete. Processes that want the same folder queue at a lock file (``flock``), which the kernel releases when its
holder dies; the first one builds. On a file system without locks several may build, and the first rename counts.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from meshwright.errors import InputError, Problem


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return ``folder``; call ``build`` to fill it if it does not exist. Raises InputError, and what build raises."""
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
    """Wait for the lock. Yields False if the file system has no locks, so that others may be building too."""
    with open(lock, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True


def _clear(folder: Path) -> None:
    """Remove the temporary folders of builders that were killed."""
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
            if not folder.is_dir():  # otherwise another process built the same folder first
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _prefix(folder: Path) -> str:
    return f".{folder.name}."


def _to_disk(folder: Path) -> None:
    """Flush contents and folder to disk before the rename, and make the folder readable by all."""
    folder.chmod(0o755)
    for path in [*folder.iterdir(), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
