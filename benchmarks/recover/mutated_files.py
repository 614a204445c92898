"""Mutate the files of a checkpoint at random, and read each as a rank of another plan would."""

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checkpoint_runs import SMALLEST, on_ranks, saved
from local_plans import small

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.manifest import (
    DIGEST,
    MANIFEST,
    Manifest,
    StoredFile,
    digest_line,
    foreign_files,
    read_manifest,
    size_problems,
)
from meshwright.runtime.checkpoint.read_shards import (
    all_chunks,
    check_chunks,
    found_stretches,
    read_stretches,
)
from meshwright.runtime.checkpoint.shard_files import stretches

KINDS: dict[str, Callable[[random.Random, bytearray], bytearray]] = {
    "one bit flipped": lambda draw, of: _flipped(draw, of),
    "cut off": lambda draw, of: of[: draw.randrange(len(of))],
    "bytes put in": lambda draw, of: _inserted(draw, of),
    "bytes overwritten": lambda draw, of: _overwritten(draw, of),
    "bytes removed": lambda draw, of: _removed(draw, of),
}


def mutated_files(count: int, seed: int) -> dict[str, Any]:
    """Return what became of ``count`` mutated files.

    Half of the files keep the digests of the original. Of the others the manifest has the digests of the mutated
    file, so that what reads headers and manifests is met by damage itself: they are refused, or change values alone.
    """
    with TemporaryDirectory() as folder:
        path = saved(Path(folder), small(SMALLEST, dp_shard=2, sharding="zero1"))
        return on_ranks(small(SMALLEST, tp=1), partial(_mutated, path=path, count=count, seed=seed))[0]


def _mutated(rank: Any, steps: Any, path: Path, count: int, seed: int) -> dict[str, Any]:
    draw, found, tracebacks = random.Random(seed), Counter[str](), list[str]()
    wanted, originals = list(stretches(rank)), {of.name: of.read_bytes() for of in path.iterdir()}
    names = sorted(originals)
    for number in range(count):
        name, kind, signed = draw.choice(names), draw.choice(list(KINDS)), bool(number % 2)
        content = bytes(KINDS[kind](draw, bytearray(originals[name])))
        if content == originals[name]:
            continue
        (path / name).write_bytes(content)
        if signed:
            _sign(path, name, content, originals)
        try:
            _read(path, wanted, rank)
            outcome = "accepted with its own digest" if signed else "accepted"
        except InputError:
            outcome = "refused"
        except Exception as error:
            outcome = "traceback"
            tracebacks.append(f"{name}, {kind}: {type(error).__name__} {error}"[:200])
        found[f"{'signed' if signed else 'unsigned'}: {outcome}"] += 1
        for changed in {name, MANIFEST, DIGEST} if signed else {name}:
            (path / changed).write_bytes(originals[changed])
    return {"counts": dict(found), "tracebacks": tracebacks[:10]}


def _read(path: Path, wanted: list[Any], rank: Any) -> None:
    """Do what a single rank does to restore a checkpoint. Raises InputError."""
    manifest: Manifest = read_manifest(path)
    problems = [*foreign_files(path, manifest), *size_problems(path, manifest.files)]
    if problems:
        raise InputError(problems)
    reading = found_stretches(path, manifest, wanted, rank.job.program)
    read = read_stretches(path, manifest, reading)
    check_chunks(path, manifest, sorted(all_chunks(manifest) - read))


def _sign(path: Path, name: str, content: bytes, originals: dict[str, bytes]) -> None:
    """Give the manifest the digests of a mutated file, or the digest file that of a mutated manifest."""
    if name == DIGEST:
        return
    text = content
    if name != MANIFEST:
        data = json.loads(originals[MANIFEST])
        data["files"][name] = _stored(content).to_data()
        text = json.dumps(data).encode()
        (path / MANIFEST).write_bytes(text)
    (path / DIGEST).write_bytes(digest_line(text))


def _stored(content: bytes) -> StoredFile:
    """Return size and digests of a file whatever its header says."""
    header = min(len(content), max(1, 8 + int.from_bytes(content[:8], "little")))
    step = max(1, len(content))
    chunks = [content[:header], *([content[header:]] if content[header:] else [])]
    return StoredFile(len(content), "", header, step, tuple(sha256(chunk).hexdigest() for chunk in chunks))


def _flipped(draw: random.Random, of: bytearray) -> bytearray:
    of[draw.randrange(len(of))] ^= 1 << draw.randrange(8)
    return of


def _inserted(draw: random.Random, of: bytearray) -> bytearray:
    place = draw.randrange(len(of))
    of[place:place] = draw.randbytes(draw.randint(1, 64))
    return of


def _overwritten(draw: random.Random, of: bytearray) -> bytearray:
    place, size = draw.randrange(len(of)), draw.randint(1, 64)
    of[place : place + size] = draw.randbytes(min(size, len(of) - place))
    return of


def _removed(draw: random.Random, of: bytearray) -> bytearray:
    place = draw.randrange(len(of))
    del of[place : place + draw.randint(1, 64)]
    return of
