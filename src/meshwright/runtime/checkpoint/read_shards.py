"""Read what one rank needs of a checkpoint: find it in the headers of the files, then read it in the files' order.

Nothing here communicates, so a single process can read the part of any rank of any plan.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from meshwright.errors import InputError, Problem, attempted
from meshwright.program.program import Program
from meshwright.runtime.checkpoint.chunked_file import ChunkedFile
from meshwright.runtime.checkpoint.compatibility import plan_facts, stored_signature
from meshwright.runtime.checkpoint.copy_elements import read_copies
from meshwright.runtime.checkpoint.manifest import Manifest
from meshwright.runtime.checkpoint.shard_files import rank_file
from meshwright.runtime.checkpoint.stored_elements import Reading, ReshardedReading, exact_reading
from meshwright.runtime.checkpoint.stored_index import StoredStretch, stored_stretches
from meshwright.runtime.checkpoint.stored_stretch import Stretch

Chunk = tuple[str, int]
"""A chunk of a file: its name and number."""


def found_stretches(path: Path, manifest: Manifest, wanted: Sequence[Stretch], program: Program) -> Reading:
    """Return how to read what a rank needs. Raises InputError for what is missing."""
    names, stored = {stretch.tensor.name for stretch in wanted}, list[StoredStretch]()
    exact = manifest.signature == stored_signature(program)
    files = {rank_file(stretch.owner) for stretch in wanted} if exact else manifest.files
    for name in sorted(files):
        if name in manifest.files:
            with ChunkedFile(path, name, manifest.files[name]) as file:
                stored += stored_stretches(file, names.__contains__)
    if exact:
        reading = exact_reading(path, wanted, stored)
    else:
        outer = manifest.plan.get("synchronise") == plan_facts(program)["synchronise"]
        resharded = ReshardedReading(path, stored, outer=outer)
        for stretch in wanted:
            resharded.add(stretch)
        reading = resharded.found
    if reading.problems:
        raise InputError(reading.problems)
    return reading


def read_stretches(path: Path, manifest: Manifest, reading: Reading) -> frozenset[Chunk]:
    """Read everything, file by file in the order of their bytes, and return the chunks. Raises InputError."""
    read: set[Chunk] = set()
    by_file = groupby(sorted(reading.copies, key=lambda of: (of.file, of.offset)), lambda of: of.file)
    for name, of_file in by_file:
        with ChunkedFile(path, name, manifest.files[name]) as file:
            for stored in of_file:
                read_copies(file, stored, reading.copies[stored])
        read |= {(name, number) for number in file.chunks_read}
    reading.store_rescaled()
    return frozenset(read)


def all_chunks(manifest: Manifest) -> frozenset[Chunk]:
    """Return all chunks that have digests."""
    files = manifest.files.items()
    return frozenset((name, number) for name, of in files if of.chunks for number in range(of.chunk_count))


def check_chunks(path: Path, manifest: Manifest, chunks: Iterable[Chunk]) -> None:
    """Raise InputError for chunks that are damaged."""
    problems: list[Problem] = []
    for name, of_file in groupby(chunks, lambda chunk: chunk[0]):
        with ChunkedFile(path, name, manifest.files[name]) as file:
            for _, number in of_file:
                attempted(partial(file.check, number), problems)
    if problems:
        raise InputError(problems)
