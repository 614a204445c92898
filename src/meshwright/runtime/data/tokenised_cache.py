"""Cache text files as token shards, so that they are tokenised only once.

The shards of some text files lie in ``CACHE/DIGEST/``, with a ``manifest.json`` and, unless bytes are tokens, the
``tokenizer.json`` that made them. DIGEST covers the contents of the files, their order and forms, and the encoder, so
another text or tokenizer never finds old shards; the paths of the files make no difference.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from meshwright.errors import InputError, Problem
from meshwright.plans.files.yaml_text import read_file
from meshwright.runtime.data.build_once import build_once
from meshwright.runtime.data.documents import PIECE, Piece, read_pieces
from meshwright.runtime.data.encoders import Encoder
from meshwright.runtime.data.hugging_face_tokenizer import FILE as TOKENIZER_FILE
from meshwright.runtime.data.input_files import DataFile, unreadable
from meshwright.runtime.data.token_shards import DTYPES, ShardWriter
from meshwright.runtime.data.train_tokenizer import learn_encoder, recipe

MANIFEST = "manifest.json"
FORM_OF_CACHE = f"meshwright tokens 1, pieces of {PIECE}"
Stamp = tuple[int, int] | None
PIECES_AT_ONCE = 64
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Contents of a folder of shards."""

    form: str
    encoder: str
    end_of_document: int
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A folder of the cache."""

    folder: Path
    manifest: Manifest

    @property
    def shards(self) -> tuple[DataFile, ...]:
        """The folder's shards, in order."""
        return tuple(DataFile(path, "binary") for path in sorted(self.folder.glob("*.bin")))

    @property
    def tokenizer(self) -> Path | None:
        """The tokenizer's file; None if bytes are tokens."""
        path = self.folder / TOKENIZER_FILE
        return path if path.is_file() else None


def tokenised(files: Sequence[DataFile], encoder: Encoder | None, vocab: int, cache: Path) -> Tokenised:
    """Return the tokens of text files; without an encoder, train one of ``vocab`` tokens on them.

    Safe to call from several processes at once: one works, the others wait. Raises InputError with all problems.
    """
    stamps = [_stamp(file) for file in files]
    how = encoder.identity if encoder else recipe(vocab)
    digest = hashlib.sha256("\n".join([FORM_OF_CACHE, how, *content_digests(files)]).encode())

    def build(place: Path) -> None:
        _tokenise(files, encoder or learn_encoder((piece.text for piece in _sound(files)), vocab), place)
        _check_unchanged(files, stamps)

    folder = build_once(cache / digest.hexdigest()[:32], build)
    return Tokenised(folder, _read_manifest(folder / MANIFEST))


def content_digests(files: Sequence[DataFile]) -> list[str]:
    """Return the form and SHA-256 of each file. Raises InputError with all files that cannot be read."""
    digests, problems = [], []
    for file in files:
        try:
            with open(file.path, "rb") as stream:
                digests.append(f"{file.form} {hashlib.file_digest(stream, 'sha256').hexdigest()}")
        except OSError as error:
            problems.append(unreadable(file.path, error))
    if problems:
        raise InputError(problems)
    return digests


def _tokenise(files: Sequence[DataFile], encoder: Encoder, folder: Path) -> None:
    dtype = DTYPES["uint16" if encoder.vocab <= 2**16 else "uint32"]
    with closing(ShardWriter(folder, dtype)) as writer:
        documents = _write(_sound(files), encoder, writer)
    if encoder.saved is not None:
        (folder / TOKENIZER_FILE).write_text(encoder.saved, encoding="utf-8")
    manifest = Manifest(
        form=FORM_OF_CACHE,
        encoder=encoder.identity,
        end_of_document=encoder.end_of_document,
        documents=documents,
        tokens=writer.tokens,
    )
    (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")


def _sound(files: Iterable[DataFile]) -> Iterator[Piece]:
    """Yield the pieces of all files. Raises InputError at the end of the last file, or after ``MAX_PROBLEMS``."""
    problems = []
    for file in files:
        for piece in read_pieces(file):
            if isinstance(piece, Problem):
                problems.append(piece)
            elif not problems:
                yield piece
            if len(problems) == MAX_PROBLEMS:
                raise InputError(problems)
    if problems:
        raise InputError(problems)


def _write(pieces: Iterator[Piece], encoder: Encoder, writer: ShardWriter) -> int:
    """Encode and write pieces; return the number of documents."""
    documents = 0
    end = np.array([encoder.end_of_document], np.uint32)
    while some := list(islice(pieces, PIECES_AT_ONCE)):
        for piece, ids in zip(some, encoder.encode([piece.text for piece in some]), strict=True):
            writer.write(ids)
            if piece.ends_document:
                writer.write(end)
                documents += 1
    return documents


def _check_unchanged(files: Sequence[DataFile], stamps: Sequence[Stamp]) -> None:
    """Check that the files did not change while they were read. Raises InputError."""
    changed = [file.path for file, stamp in zip(files, stamps, strict=True) if _stamp(file) != stamp]
    hint = "start again when it is written"
    if changed:
        raise InputError(Problem("data", str(path), "changed while it was read", hint) for path in changed)


def _stamp(file: DataFile) -> Stamp:
    """Return a file's size and modification time; None if it is gone."""
    try:
        facts = file.path.stat()
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns


def _read_manifest(path: Path) -> Manifest:
    hint = f"remove the folder {path.parent}"
    text = read_file(path, "cache", hint)
    try:
        manifest = Manifest(**json.loads(text))
        if manifest.form == FORM_OF_CACHE:
            return manifest
    except (ValueError, TypeError, RecursionError):
        pass
    raise InputError(Problem("cache", str(path), "is damaged", hint))
