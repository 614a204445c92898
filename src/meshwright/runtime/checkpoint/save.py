"""Save a checkpoint: every rank writes the shards that it owns first, and rank 0 commits when all are on disk.

Saving only reads the run's state, so it does not change the run; it waits for results of exchanges that are on their
way. All ranks must see the same folder. Ranks wait for the slowest writer no longer than the run's time-out.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.all_or_none import all_or_none
from meshwright.runtime.checkpoint.compatibility import model_facts, plan_facts, stored_signature
from meshwright.runtime.checkpoint.manifest import DIGEST, MANIFEST, Manifest, StoredFile, digest_line
from meshwright.runtime.checkpoint.run_folder import abandon, begin, commit, unfinished, write_errors
from meshwright.runtime.checkpoint.shard_files import rank_file, stretches
from meshwright.runtime.checkpoint.shard_output import write_shard
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.fsync import fsync_path

Written = dict[str, StoredFile]


def save_checkpoint(folder: Path, rank: Rank, facts: Mapping[str, object]) -> Path:
    """Save the run as ``folder/step-…`` and return that path.

    Every rank calls it between steps; rank 0's facts are stored.

    ``facts`` must be JSON. Raises InputError on all ranks if the folder cannot be written; earlier checkpoints stay
    intact. A checkpoint of the same step is replaced.
    """
    json.dumps(facts)
    assert rank.interpreter.states.settled, "a step is still to be validated"
    rank.interpreter.states.synchroniser.settle()
    step, first = rank.interpreter.states.optimizer.step, rank.place.rank == 0
    try:
        all_or_none(rank, "beginning of a checkpoint", lambda: begin(folder, step) if first else None)
        written = all_or_none(rank, "files of a checkpoint", lambda: _write(unfinished(folder, step), rank))
        files = {name: stored for of_rank in written for name, stored in of_rank.items()}
        manifest = manifest_of(rank, facts, files)
        (path, *_) = all_or_none(
            rank, "commitment of a checkpoint", lambda: finish(folder, manifest) if first else None
        )
    except InputError:
        if first:
            abandon(folder, step)
        raise
    assert path is not None
    return path


def _write(place: Path, rank: Rank) -> Written:
    """Write this rank's file to disk; write none if other ranks own everything it holds."""
    own = [stretch for stretch in stretches(rank) if stretch.owner == rank.place.rank]
    if not own:
        return {}
    path = place / rank_file(rank.place.rank)
    with write_errors(path):
        rank.before_write(rank.interpreter.states.optimizer.step)
        return {path.name: write_shard(path, own)}


def manifest_of(rank: Rank, facts: Mapping[str, object], files: Written) -> Manifest:
    """Return the manifest of these files."""
    program = rank.job.program
    return Manifest(
        signature=stored_signature(program),
        ranks=rank.place.ranks,
        precision=rank.job.precision,
        step=rank.interpreter.states.optimizer.step,
        plan=plan_facts(program),
        model=model_facts(rank.job.model),
        facts=facts,
        files=files,
    )


def finish(folder: Path, manifest: Manifest) -> Path:
    """Write the manifest of a checkpoint whose files are on disk, and give the folder its name. Raises InputError."""
    place = unfinished(folder, manifest.step)
    with write_errors(place):
        write_manifest(place, manifest)
    return commit(folder, manifest.step)


def write_manifest(place: Path, manifest: Manifest) -> None:
    """Write a manifest and its digest to disk. Raises OSError."""
    text = manifest.to_text().encode()
    for name, content in ((MANIFEST, text), (DIGEST, digest_line(text))):
        (place / name).write_bytes(content)
        fsync_path(place / name)
