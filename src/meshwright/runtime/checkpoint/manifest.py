"""The manifest of a checkpoint: ``manifest.json``, and a digest file of the form that ``sha256sum`` writes.

The manifest lists every other file with its size and the SHA-256 of its header and of each 16 MiB behind it, so a
flipped byte in any file is detected, including in the manifest and its digest, and a rank that needs a part of a file
checks that part alone. Format 1 had one SHA-256 for each file. This module does not need torch.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from meshwright import __version__
from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.run_folder import committed, in_short, read_errors

FORMAT = 2
FORMATS = (1, 2)
"""The formats that this release reads."""
CHUNK_BYTES = 2**24
"""Bytes of a file that have one digest."""
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, as a little-endian number of so many bytes."""
MANIFEST, DIGEST = "manifest.json", "manifest.json.sha256"
MAX_MANIFEST_BYTES = 2**26
KINDS: Mapping[str, type] = {
    "format": int,
    "signature": str,
    "ranks": int,
    "precision": str,
    "step": int,
    "plan": dict,
    "model": dict,
    "facts": dict,
    "files": dict,
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Size and digests of a checkpoint's file at the time of writing.

    ``chunks`` are the digests of its first ``header_bytes``, and of the chunks of ``chunk_bytes`` behind them, the last
    of which may be shorter; in format 1 there are none, and ``sha256`` is the digest of the whole file.
    """

    size_bytes: int
    sha256: str = ""
    header_bytes: int = 0
    chunk_bytes: int = CHUNK_BYTES
    chunks: tuple[str, ...] = ()

    def chunk_of(self, place: int) -> int:
        """Return the number of the chunk that a byte lies in; the header is number 0."""
        return 0 if place < self.header_bytes else 1 + (place - self.header_bytes) // self.chunk_bytes

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return the first byte of a chunk, and the first behind it."""
        if chunk == 0:
            return 0, self.header_bytes
        start = self.header_bytes + (chunk - 1) * self.chunk_bytes
        return start, min(start + self.chunk_bytes, self.size_bytes)

    @property
    def chunk_count(self) -> int:
        """The number of chunks, the header included."""
        return 1 + -(-(self.size_bytes - self.header_bytes) // self.chunk_bytes)

    def to_data(self) -> dict[str, object]:
        """Return its entry in the manifest."""
        of_chunks = ("header_bytes", "chunk_bytes", "chunks")
        names = ("size_bytes", *(("sha256",) if self.sha256 else of_chunks))
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of a saved checkpoint.

    ``signature`` is the Program's, ``facts`` come from the caller, ``files`` lists all files except the manifest.
    """

    signature: str
    ranks: int
    precision: str
    step: int
    plan: Mapping[str, object]
    model: Mapping[str, object]
    facts: Mapping[str, object]
    files: Mapping[str, StoredFile]

    def to_text(self) -> str:
        """Return the manifest as JSON text."""
        data = {"format": FORMAT, "written_by": f"meshwright {__version__}", **asdict(self)}
        data["files"] = {name: stored.to_data() for name, stored in self.files.items()}
        return json.dumps(data, indent=1) + "\n"


def digest_line(text: bytes) -> bytes:
    """Return the content of the digest file for a manifest's text."""
    return f"{sha256(text).hexdigest()}  {MANIFEST}\n".encode()


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint. Raises InputError if it is damaged or has another format."""
    if not path.is_dir():
        suggestion = "the folder of a checkpoint, such as step-00000120"
        raise InputError(Problem("checkpoint", in_short(path), "no such checkpoint", suggestion))
    text, digest = _content(path, MANIFEST, MAX_MANIFEST_BYTES), _content(path, DIGEST, len(digest_line(b"")))
    if digest != digest_line(text):
        raise InputError(damage(path, MANIFEST, f"does not fit {DIGEST} beside it: one of both is damaged"))
    return _parsed(path, text)


def facts_of(manifest: Manifest) -> dict[str, object]:
    """Return what ``read_facts`` returns, from a manifest in memory; the caller's own facts win."""
    own = ("step", "signature", "ranks", "precision", "plan", "model")
    return {name: getattr(manifest, name) for name in own} | dict(manifest.facts)


def size_problems(path: Path, files: Mapping[str, StoredFile]) -> Iterator[Problem]:
    """Yield a problem for each of these files that is missing or has another length; none is read."""
    for name, stored in files.items():
        try:
            size = (path / name).stat().st_size
        except OSError as error:
            yield damage(path, name, f"cannot be read: {error.strerror or error}")
            continue
        if size != stored.size_bytes:
            word = "truncated" if size < stored.size_bytes else "too long"
            yield damage(path, name, f"is {word}: {size} bytes of {stored.size_bytes}")


def foreign_files(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Yield a problem for each file in a checkpoint's folder that the manifest does not list."""
    with read_errors(path):
        names = sorted(entry.name for entry in path.iterdir())
    for name in names:
        if name not in (MANIFEST, DIGEST, *manifest.files):
            yield damage(path, name, "is foreign: the manifest does not name it")


def damage(path: Path, name: str, rule: str) -> Problem:
    """Return the problem of a damaged file; suggest an earlier checkpoint, or moving this one away."""
    earlier = [other for other in committed(path.parent) if other.name < path.name]
    suggestion = f"give another checkpoint, or move {path.name} away to begin anew"
    if earlier:
        suggestion = (
            f"begin from an earlier one: {earlier[-1].name}, by moving {path.name} away, or by "
            f"--resume {earlier[-1]} with another --out"
        )
    return Problem("checkpoint", in_short(path / name), rule, suggestion)


def _content(path: Path, name: str, most: int) -> bytes:
    """Read a file, at most one byte more than the expected maximum."""
    if not (path / name).is_file():
        raise InputError(damage(path, name, "is missing"))
    with read_errors(path / name), (path / name).open("rb") as file:
        return file.read(most + 1)


def _parsed(path: Path, text: bytes) -> Manifest:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(damage(path, MANIFEST, f"is no JSON: {str(error)[:200]}")) from None
    data = data if isinstance(data, dict) else {}
    if type(data.get("format")) is int and data["format"] not in FORMATS:
        rule = (
            f"has format {data['format']}, written by {data.get('written_by')}; "
            f"this release reads {' and '.join(map(str, FORMATS))}"
        )
        raise InputError(Problem("checkpoint", in_short(path / MANIFEST), rule, "the release that wrote it"))
    wrong = [name for name, kind in KINDS.items() if type(data.get(name)) is not kind]
    if wrong:
        raise InputError(damage(path, MANIFEST, f"is none of ours: no legal {', '.join(wrong)}"))
    fields = {name: data[name] for name in KINDS if name not in ("format", "files")}
    return Manifest(**fields, files={name: _file(path, name, of) for name, of in data["files"].items()})


def _file(path: Path, name: str, data: object) -> StoredFile:
    if Path(name).name == name and isinstance(data, dict):
        size, digest = data.get("size_bytes"), data.get("sha256")
        if type(size) is int and isinstance(digest, str) and digest:
            return StoredFile(size, digest)
        header, step, chunks = data.get("header_bytes"), data.get("chunk_bytes"), data.get("chunks")
        if type(size) is type(header) is type(step) is int and isinstance(chunks, list):
            found = StoredFile(size, "", header, step, tuple(map(str, chunks)))
            if 0 < header <= size and step > 0 and found.chunk_count == len(chunks):
                return found
    raise InputError(damage(path, MANIFEST, f"says nothing legal of the file {name[:80]!r}"))
