"""Make files and folder entries durable, so that they survive a crash of the machine."""

import os
from pathlib import Path


def fsync_path(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_usual_rights(path: Path) -> None:
    """Give a file the permissions of any new file, if its writer gave it those of a temporary one. Raises OSError."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
