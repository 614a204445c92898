"""Stream the events of a Kineto trace, so that a gigabyte of JSON needs the memory of one event.

Source: libkineto/src/output_json.cpp of pytorch/kineto (002d991). A trace is one object: header keys, the array
``traceEvents`` of small objects, more header keys. The array alone, the other form of Chrome's trace format, is read
too. Invalid UTF-8 (in names of kernels) is replaced, control characters in names are accepted: both occur in real
traces. ``.gz`` is recognised by its first bytes, not by the name of the file.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem

EVENTS = "traceEvents"
MAX_BYTES = 2**30
MAX_VALUE = 2**24
CHUNK = 2**20
_BLANK = re.compile(r"[ \t\r\n]*")


class TraceError(ValueError):
    """The reason why a file is not a trace; the text is a rule of a ``Problem``."""


def stream_trace(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of every header key and (``traceEvents``, event) of every event. Raises InputError."""
    try:
        yield from _Reader(_text(path)).trace()
        return
    except TraceError as error:
        rule = str(error)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        rule = f"is damaged gzip: {error}"
    except json.JSONDecodeError as error:
        rule = f"cannot be read as JSON: {error.msg}"
    except RecursionError:
        rule = "is nested too deeply for a trace"
    except (OSError, ValueError) as error:
        rule = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    raise InputError(Problem("trace", str(path), rule, "a .json or .json.gz that torch.profiler has written"))


def _text(path: str | Path) -> Iterator[str]:
    """Yield the text of the file in pieces, decompressed if needed."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    total = 0
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        source = gzip.GzipFile(fileobj=file) if packed else file
        while piece := source.read(CHUNK):
            total += len(piece)
            if total > MAX_BYTES:
                raise TraceError(
                    f"is too large: more than {MAX_BYTES >> 20} MiB unpacked; profile fewer steps"
                )
            yield decoder.decode(piece)


class _Reader:
    """Parser of successive JSON values from pieces of text."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces, self.text, self.at = pieces, "", 0
        self.decoder = json.JSONDecoder(strict=False)

    def trace(self) -> Iterator[tuple[str, Any]]:
        """Yield the whole trace, in either form."""
        if self.peek() == "[":
            yield from self.events()
        else:
            yield from self.members()
        if self.peek():
            raise TraceError("goes on after its end")

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield keys and values of the object; the array of events one by one."""
        self.take("{")
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise TraceError("is no JSON object of text keys")
            self.take(":")
            if key == EVENTS:
                yield from self.events()
            else:
                yield key, self.value()
            self.separate("}")
        self.take("}")

    def events(self) -> Iterator[tuple[str, Any]]:
        """Yield the elements of an array."""
        self.take("[")
        while self.peek() != "]":
            yield EVENTS, self.value()
            self.separate("]")
        self.take("]")

    def separate(self, end: str) -> None:
        """Skip a comma, or stop at the end of the array or object."""
        if self.peek() != end:
            self.take(",")

    def take(self, sign: str) -> None:
        """Skip a sign that must come next."""
        if self.peek() != sign:
            found = self.peek() or "the end of the file"
            raise TraceError(f"is no trace, or a part of one: expected {sign}, found {found!r}")
        self.at += 1

    def peek(self) -> str:
        """Return the next sign that is not blank; empty at the end of the file."""
        while True:
            blank = _BLANK.match(self.text, self.at)
            assert blank is not None, "the pattern matches nothing, too"
            self.at = blank.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""

    def value(self) -> Any:
        """Return the next value; read on while it is cut by the end of a piece."""
        self.peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError:
                if len(self.text) - self.at > MAX_VALUE or not self.more():
                    raise
                continue
            if end < len(self.text) or not self.more():  # a number may continue in the next piece
                self.at = end
                return value

    def more(self) -> bool:
        """Append the next piece of text; return False at the end of the file."""
        piece = next((piece for piece in self.pieces if piece), "")
        self.text, self.at = self.text[self.at :] + piece, 0
        return bool(piece)
