"""Restoring: everything is checked by all ranks before the first value is loaded.

In this order, and all ranks stop together at the first that fails: the manifest; that it is of this plan, model and
precision; every file's size and SHA-256, each file by one rank; that the files hold what each rank needs.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.manifest import (
    Manifest,
    facts_of,
    file_problems,
    foreign_files,
    read_manifest,
)
from meshwright.runtime.checkpoint.plan_facts import misfits
from meshwright.runtime.checkpoint.shards import StretchFiles, stretches
from meshwright.runtime.checkpoint.together import together
from meshwright.runtime.rank import Rank


def restore_checkpoint(path: Path, rank: Rank) -> dict[str, object]:
    """Load this rank's part of a checkpoint; returns what ``read_facts`` does. Every rank calls it between steps.

    Raises InputError on all ranks with everything that is wrong with the checkpoint, and then has loaded nothing.
    """
    manifest = _agreed_manifest(path, rank)
    job = rank.job
    found = misfits(manifest, job.program, job.model, job.precision)
    together(rank, "comparison of plans", lambda: _refuse(found))
    together(rank, "check of files", lambda: _refuse(_damages(path, manifest, rank)))
    wanted = list(stretches(rank))
    with StretchFiles(path) as files:
        together(rank, "search for shards", lambda: _refuse(p for s in wanted for p in files.problems(s)))
        together(rank, "loading of shards", lambda: files.read(wanted))
    states = rank.interpreter.states
    states.optimizer.step = manifest.step
    states.renew()
    return facts_of(manifest)


def _refuse(problems: Iterable[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise InputError(found)


def _agreed_manifest(path: Path, rank: Rank) -> Manifest:
    """The manifest, which is the same for all ranks."""
    read: list[Manifest] = []

    def attempt() -> str:
        read.append(read_manifest(path))
        return sha256(read[0].to_text().encode()).hexdigest()

    if len(set(together(rank, "reading of the manifest", attempt))) > 1:
        rule = "the ranks see different checkpoints under this name"
        raise InputError(Problem("checkpoint", str(path), rule, "a folder that all ranks see"))
    return read[0]


def _damages(path: Path, manifest: Manifest, rank: Rank) -> Iterator[Problem]:
    """What is wrong with this rank's share of the files; rank 0 looks for foreign ones too."""
    if rank.place.rank == 0:
        yield from foreign_files(path, manifest)
    share = sorted(manifest.files)[rank.place.rank :: rank.place.ranks]
    yield from file_problems(path, {name: manifest.files[name] for name in share})
