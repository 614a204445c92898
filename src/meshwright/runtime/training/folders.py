"""Whether files can be made in a folder, seen before hours of work end there."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from meshwright.errors import InputError, Problem


def check_folder(folder: Path, field: str) -> None:
    """Make a file in a folder and remove it, with the folders that had to be made for it. Raises InputError.

    Only this tells: rights that a system shows do not hold for every user and file system.
    """
    made: list[Path] = []
    try:
        for path in reversed(_missing(folder)):
            path.mkdir()
            made.append(path)
        with TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        rule = f"cannot be written: {getattr(error, 'strerror', None) or error}"
        raise InputError(Problem(field, str(folder), rule, "a folder of this user")) from None
    finally:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()


def _missing(folder: Path) -> Sequence[Path]:
    """The folder and those above it that are not there, from the inside out."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
