"""Restore a checkpoint under the plan that wrote it, or under another one.

Every rank reads what it is the first owner of, each byte once, and checks the digests of what it reads; other ranks
that hold the same get it from the first owner. What no rank needs is checked by one of them, so damage anywhere is
found. All ranks stop together at the first of these that fails: the manifest; its model, workload and precision; the
lengths of the files; that they hold what the ranks need; their digests. Only then is a step taken: what a rank held
before is lost if the last one fails.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.all_or_none import all_or_none
from meshwright.runtime.checkpoint.chunked_file import file_problems
from meshwright.runtime.checkpoint.compatibility import incompatibilities
from meshwright.runtime.checkpoint.manifest import (
    Manifest,
    facts_of,
    foreign_files,
    read_manifest,
    size_problems,
)
from meshwright.runtime.checkpoint.pass_to_copies import pass_to_copies
from meshwright.runtime.checkpoint.read_shards import (
    Chunk,
    all_chunks,
    check_chunks,
    found_stretches,
    read_stretches,
)
from meshwright.runtime.checkpoint.shard_files import stretches
from meshwright.runtime.checkpoint.stored_elements import Reading
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank


def restore_checkpoint(path: Path, rank: Rank) -> dict[str, object]:
    """Load this rank's part of a checkpoint and return its facts as ``read_facts`` does.

    Every rank calls it between steps. The plan may be another one than that of the checkpoint. Raises InputError on all
    ranks with every problem of the checkpoint; the run cannot go on then.
    """
    manifest, job = _agreed_manifest(path, rank), rank.job
    found = incompatibilities(manifest, job.program, job.model, job.precision)
    all_or_none(rank, "comparison of plans", lambda: _refuse(found))
    states = rank.interpreter.states
    states.synchroniser.expect(manifest.step)
    wanted = list(stretches(rank))
    try:
        _load(path, manifest, rank, [stretch for stretch in wanted if stretch.owner == rank.place.rank])
    except InputError as error:  # everything else that is wrong is told with it
        problems = {str(problem): problem for problem in (*error.problems, *_damages(path, manifest, rank))}
        all_or_none(rank, "check of all files", lambda: _refuse(problems.values()))
        raise
    pass_to_copies(rank, wanted)
    states.optimizer.step = manifest.step
    states.renew()
    return facts_of(manifest)


def _load(path: Path, manifest: Manifest, rank: Rank, own: Sequence[Stretch]) -> None:
    """Read what this rank is the first owner of. Raises InputError on all ranks."""
    here, ranks, readings = rank.place.rank, rank.place.ranks, list[Reading]()
    all_or_none(rank, "check of files", lambda: _refuse(_damages(path, manifest, rank, contents=False)))
    all_or_none(
        rank,
        "search for shards",
        lambda: readings.append(found_stretches(path, manifest, own, rank.job.program)),
    )
    every = all_or_none(rank, "loading of shards", lambda: read_stretches(path, manifest, readings[0]))
    unread = all_chunks(manifest) - frozenset[Chunk]().union(*every)
    share = sorted(unread)[here::ranks]
    all_or_none(rank, "check of what no rank needs", lambda: check_chunks(path, manifest, share))


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


def _damages(path: Path, manifest: Manifest, rank: Rank, *, contents: bool = True) -> Iterator[Problem]:
    """Yield what is wrong with this rank's share of the files; rank 0 also looks for foreign files.

    Without ``contents``, chunks are not read: they are checked when they are needed.
    """
    here, ranks = rank.place.rank, rank.place.ranks
    if here == 0:
        yield from foreign_files(path, manifest)
    for name in sorted(manifest.files)[here::ranks]:
        of = {name: manifest.files[name]}
        later = manifest.files[name].chunks and not contents
        yield from size_problems(path, of) if later else file_problems(path, of)
