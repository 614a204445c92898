"""Read a file of a checkpoint chunk by chunk, each chunk checked against its digest as it is read.

A rank checks exactly what it reads: of a checkpoint of another layout it may need little of a file. Whoever reads in
the order of the file reads every chunk once and holds one chunk at a time.
"""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from types import TracebackType
from typing import Self

from meshwright.errors import InputError, Problem, attempted
from meshwright.runtime.checkpoint.manifest import StoredFile, damage, size_problems
from meshwright.runtime.checkpoint.run_folder import read_errors


class ChunkedFile:
    """A file of the checkpoint at ``path``. Use it in a ``with``. ``chunks_read`` are the numbers of chunks read."""

    def __init__(self, path: Path, name: str, stored: StoredFile) -> None:
        self.path, self.name, self.stored = path, name, stored
        self.chunks_read: list[int] = []
        self._number, self._chunk, self._file = -1, bytearray(), -1

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path / self.name, os.O_RDONLY)
        except OSError as error:
            raise self._damaged(f"cannot be read: {error.strerror or error}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
        self._chunk, self._number = bytearray(), -1

    def read(self, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start``, valid until the next call. Raises InputError for damaged chunks."""
        if start + size > self.stored.size_bytes:
            raise self._damaged(f"ends before byte {start + size}")
        first, last = self.stored.chunk_of(start), self.stored.chunk_of(max(start, start + size - 1))
        if first == last:
            within = start - self.stored.bounds(first)[0]
            return memoryview(self._content(first))[within : within + size]
        joined = bytearray()
        for number in range(first, last + 1):
            begin, end = self.stored.bounds(number)
            joined += memoryview(self._content(number))[
                max(start, begin) - begin : min(start + size, end) - begin
            ]
        return memoryview(joined)

    def check(self, number: int) -> None:
        """Read a chunk for its digest alone. Raises InputError if it is damaged."""
        self._content(number)

    def _content(self, number: int) -> bytearray:
        if number != self._number:
            self._chunk, self._number = self._loaded(number), number
            self.chunks_read.append(number)
        return self._chunk

    def _loaded(self, number: int) -> bytearray:
        start, stop = self.stored.bounds(number)
        content = bytearray(stop - start)
        try:
            read = os.preadv(self._file, [content], start)
        except OSError as error:
            raise self._damaged(f"cannot be read: {error.strerror or error}") from None
        if read != len(content):
            raise self._damaged(f"is truncated: {start + read} bytes of {self.stored.size_bytes}")
        chunks = self.stored.chunks
        if chunks and sha256(content).hexdigest() != chunks[number]:
            raise self._damaged(
                f"is damaged: bytes {start} to {stop} do not have the SHA-256 that the manifest says"
            )
        return content

    def _damaged(self, rule: str) -> InputError:
        return InputError(damage(self.path, self.name, rule))


def file_problems(path: Path, files: Mapping[str, StoredFile]) -> Iterator[Problem]:
    """Yield a problem for each of these files that is missing, truncated or damaged; all of them are read."""
    for name, stored in files.items():
        problems = list(size_problems(path, {name: stored}))
        if not problems:
            attempted(partial(_check_content, path, name, stored), problems)
        yield from problems


def _check_content(path: Path, name: str, stored: StoredFile) -> None:
    """Read a whole file. Raises InputError if it is damaged."""
    if not stored.chunks:
        with read_errors(path / name), (path / name).open("rb") as whole:
            if file_digest(whole, "sha256").hexdigest() != stored.sha256:
                rule = "is damaged: its SHA-256 is not what the manifest says"
                raise InputError(damage(path, name, rule))
        return
    with ChunkedFile(path, name, stored) as file:
        for number in range(stored.chunk_count):
            file.check(number)
