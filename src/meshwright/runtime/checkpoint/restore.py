"""Restore a checkpoint. All ranks check everything before the first value is loaded.

Checks, in this order; all ranks stop together at the first failure: the manifest; its plan, model and precision; the
size and SHA-256 of every file, each file checked by one rank; that the files hold the stretches each rank needs.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.all_or_none import all_or_none
from meshwright.runtime.checkpoint.compatibility import incompatibilities
from meshwright.runtime.checkpoint.manifest import (
    Manifest,
    facts_of,
    file_problems,
    foreign_files,
    read_manifest,
)
from meshwright.runtime.checkpoint.shard_files import StretchFiles, stretches
from meshwright.runtime.executor.rank import Rank


def restore_checkpoint(path: Path, rank: Rank) -> dict[str, object]:
    """Load this rank's part of a checkpoint and return its facts as ``read_facts`` does.

    Every rank calls it between steps.

    Raises InputError on all ranks with every problem of the checkpoint; nothing is loaded then.
    """
    manifest = _agreed_manifest(path, rank)
    job = rank.job
    found = incompatibilities(manifest, job.program, job.model, job.precision)
    all_or_none(rank, "comparison of plans", lambda: _refuse(found))
    all_or_none(rank, "check of files", lambda: _refuse(_damages(path, manifest, rank)))
    states = rank.interpreter.states
    states.synchroniser.expect(manifest.step)
    pieces = list(stretches(rank))
    with StretchFiles(path) as files:
        all_or_none(rank, "search for shards", lambda: _refuse(p for s in pieces for p in files.problems(s)))
        all_or_none(rank, "loading of shards", lambda: files.read(pieces))
    states.optimizer.step = manifest.step
    states.renew()
    return facts_of(manifest)


def _refuse(problems: Iterable[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise InputError(found)


def _agreed_manifest(path: Path, rank: Rank) -> Manifest:
    """Read the manifest and check that all ranks read the same one."""
    read: list[Manifest] = []

    def attempt() -> str:
        read.append(read_manifest(path))
        return sha256(read[0].to_text().encode()).hexdigest()

    if len(set(all_or_none(rank, "reading of the manifest", attempt))) > 1:
        rule = "the ranks see different checkpoints under this name"
        raise InputError(Problem("checkpoint", str(path), rule, "a folder that all ranks see"))
    return read[0]


def _damages(path: Path, manifest: Manifest, rank: Rank) -> Iterator[Problem]:
    """Yield the problems of this rank's share of the files; rank 0 also looks for foreign files."""
    if rank.place.rank == 0:
        yield from foreign_files(path, manifest)
    share = sorted(manifest.files)[rank.place.rank :: rank.place.ranks]
    yield from file_problems(path, {name: manifest.files[name] for name in share})
