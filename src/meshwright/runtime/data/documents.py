"""Stream the texts of a file in pieces, so that a file of any size needs the same memory.

A text file is one document. Each line of a ``.jsonl`` file is a JSON object whose ``text`` is one document; its other
keys are ignored. Texts are taken unchanged; only a byte order mark and empty lines or documents are skipped.

A document is cut into pieces of at most ``PIECE`` characters, after the last line end in reach, else before the last
space, else at the limit; no character is lost. Pieces are tokenised separately, so no token crosses a cut: a document
of a million characters gets about fifteen tokens that it would not have uncut.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO, NamedTuple

from meshwright.errors import Problem
from meshwright.runtime.data.input_files import DataFile, Form, unreadable

PIECE = 2**16
READ_BYTES = 2**20
MAX_LINE_BYTES = 2**25
"""Longest line of a ``.jsonl`` file, which is held in memory whole."""


class Piece(NamedTuple):
    """Some text of a document, and whether the document ends with it."""

    text: str
    ends_document: bool


def read_pieces(file: DataFile) -> Iterator[Piece | Problem]:
    """Yield the pieces of a file's documents, and a problem in place of anything unreadable."""
    try:
        with open(file.path, "rb") as stream:
            yield from READERS[file.form](stream, file.path)
    except OSError as error:
        yield unreadable(file.path, error)


def _read_text(stream: BinaryIO, path: Path) -> Iterator[Piece | Problem]:
    """Return the pieces of a text file as one document. The first byte that is not text ends the file."""
    return _pieces(_decoded(stream, path))


def _decoded(stream: BinaryIO, path: Path) -> Iterator[str | Problem]:
    place, rest = 0, b""
    while True:
        chunk = stream.read(READ_BYTES)
        data = rest + chunk
        if not place and data.startswith(codecs.BOM_UTF8):
            place, data = len(codecs.BOM_UTF8), data.removeprefix(codecs.BOM_UTF8)
        try:
            text, used = codecs.utf_8_decode(data, "strict", not chunk)
        except UnicodeDecodeError as error:
            yield _no_text(path, place + error.start, f"byte 0x{data[error.start]:02x} is not UTF-8")
            return
        if "\0" in text:
            yield _no_text(path, place + len(text.partition("\0")[0].encode()), "byte 0x00 is no character")
            return
        yield text
        if not chunk:
            return
        place, rest = place + used, data[used:]


def _read_json_lines(stream: BinaryIO, path: Path) -> Iterator[Piece | Problem]:
    """Yield the pieces of one document per line.

    A line that is too long ends the file: the begin of the next line is not known.
    """
    for number in count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            rule = f"has more than {MAX_LINE_BYTES} bytes"
            yield Problem(f"data: {path}", f"line {number}", rule, "cut its document in two")
            return
        if line.strip():
            text = _text_of(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
            if isinstance(text, str):
                yield from _pieces([text])
            else:
                yield _no_document(path, number, text.rule)


class _Refused(NamedTuple):
    """The reason why a line holds no document."""

    rule: str


def _text_of(line: bytes) -> str | _Refused:
    try:
        data = json.loads(line.decode("utf-8"))
        text = data.get("text") if isinstance(data, dict) else None
        if not isinstance(text, str):
            return _Refused('must be an object with text under "text"')
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _Refused("holds half of a surrogate pair, which no character is")
    except UnicodeDecodeError as error:
        return _Refused(f"byte {error.start} is not UTF-8")
    except RecursionError:
        return _Refused("is nested too deeply")
    except ValueError as error:
        return _Refused(f"is not JSON: {str(error)[:80]}")
    return text


def _pieces(texts: Iterable[str | Problem]) -> Iterator[Piece | Problem]:
    """Cut one document, given as successive ``texts``, into pieces; where the texts end makes no difference."""
    waiting = ""
    for text in texts:
        if isinstance(text, Problem):
            yield text
            return
        waiting += text
        start = 0
        while len(waiting) - start > PIECE:
            end = _cut(waiting, start)
            yield Piece(waiting[start:end], ends_document=False)
            start = end
        waiting = waiting[start:]
    if waiting:
        yield Piece(waiting, ends_document=True)


def _cut(text: str, start: int) -> int:
    """Return the end of the piece that begins at ``start``."""
    line = text.rfind("\n", start, start + PIECE)
    if line >= 0:
        return line + 1
    space = text.rfind(" ", start + 1, start + PIECE)
    return space if space >= 0 else start + PIECE


def _no_text(path: Path, position: int, rule: str) -> Problem:
    return Problem("data", str(path), f"is not text: {rule} (at byte {position})", "save it as UTF-8 text")


def _no_document(path: Path, number: int, rule: str) -> Problem:
    return Problem(f"data: {path}", f"line {number}", rule, 'write lines like {"text": "A document."}')


READERS: dict[Form, Callable[[BinaryIO, Path], Iterator[Piece | Problem]]] = {
    "text": _read_text,
    "json-lines": _read_json_lines,
}
