"""The manifest of a checkpoint: ``manifest.json``, and a digest file of the form that ``sha256sum`` writes.

The manifest lists every other file with size and SHA-256, so a flipped byte in any file is detected, including in the
manifest and its digest. This module does not need torch.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from meshwright import __version__
from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.run_folder import committed, in_short, read_errors

FORMAT = 1
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
    """Size and digest of a checkpoint's file at the time of writing."""

    size_bytes: int
    sha256: str


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
        return json.dumps(data, indent=1) + "\n"


def stored_file(path: Path) -> StoredFile:
    """Return size and digest of a file. Raises OSError."""
    with path.open("rb") as file:
        return StoredFile(path.stat().st_size, file_digest(file, "sha256").hexdigest())


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


def file_problems(path: Path, files: Mapping[str, StoredFile]) -> Iterator[Problem]:
    """Yield a problem for each of these files that is missing, truncated or damaged."""
    for name, stored in files.items():
        try:
            size = (path / name).stat().st_size
            if size != stored.size_bytes:
                word = "truncated" if size < stored.size_bytes else "too long"
                yield damage(path, name, f"is {word}: {size} bytes of {stored.size_bytes}")
            elif stored_file(path / name) != stored:
                yield damage(path, name, "is damaged: its SHA-256 is not what the manifest says")
        except OSError as error:
            yield damage(path, name, f"cannot be read: {error.strerror or error}")


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
    if type(data.get("format")) is int and data["format"] != FORMAT:
        rule = (
            f"has format {data['format']}, written by {data.get('written_by')}; this release reads {FORMAT}"
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
        if type(size) is int and isinstance(digest, str):
            return StoredFile(size, digest)
    raise InputError(damage(path, MANIFEST, f"says nothing legal of the file {name[:80]!r}"))
