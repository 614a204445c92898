"""What shall be there after the machine stops: files, and the names that folders give them."""

import os
from pathlib import Path


def settle(path: Path) -> None:
    """Have the disk hold a file's content, or a folder's names. Raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def give_usual_rights(path: Path) -> None:
    """The rights of any new file, for one whose writer gave it those of a temporary one. Raises OSError."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
