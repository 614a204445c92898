"""Choose the checkpoint that a recovery goes back to: the newest one that is whole and older than the fault."""

from pathlib import Path
from typing import NamedTuple

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.chunked_file import file_problems
from meshwright.runtime.checkpoint.manifest import foreign_files, read_manifest
from meshwright.runtime.checkpoint.run_folder import committed, step_of


class Choice(NamedTuple):
    """A checkpoint, None for the begin of the run, and sentences about newer ones that were left out."""

    path: Path | None
    remarks: tuple[str, ...]

    @property
    def step(self) -> int:
        """The number of steps that the checkpoint has taken; 0 at the begin of the run."""
        return 0 if self.path is None else (step_of(self.path) or 0)


def checkpoint_before(folder: Path, step: int, begin: Path | None) -> Choice:
    """Return the newest checkpoint in ``folder`` of at most ``step`` steps whose digests agree, else ``begin``.

    A checkpoint of more steps has the effect of a fault at ``step`` in it.
    """
    remarks = []
    for path in reversed(committed(folder)):
        if (step_of(path) or 0) > step:
            remarks.append(f"{path} is not used: it was saved behind step {step}, which the fault affected.")
            continue
        damage = _damage(path)
        if not damage:
            return Choice(path, tuple(remarks))
        remarks.append(f"{path} is not used: {damage}.")
    return Choice(begin, tuple(remarks))


def _damage(path: Path) -> str:
    """Return the first thing that is wrong with a checkpoint, after every byte was read."""
    try:
        manifest = read_manifest(path)
        problems = [*foreign_files(path, manifest), *file_problems(path, manifest.files)]
    except InputError as error:
        problems = list(error.problems)
    return str(problems[0]).rstrip(".") if problems else ""
