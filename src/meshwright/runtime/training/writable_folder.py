"""Check that files can be created in a folder, before hours of work depend on it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from meshwright.errors import InputError, Problem


def check_folder(folder: Path, field: str) -> None:
    """Create and remove a file in a folder, and any folders that this needs. Raises InputError.

    Only the attempt is reliable: displayed permissions do not hold for every user and file system.
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
    """Return the folder and its parents that do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
