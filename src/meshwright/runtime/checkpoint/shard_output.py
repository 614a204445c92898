"""Write a rank's stretches to a safetensors file piece by piece, with the digests of its chunks on the way.

The header is known before the first value, so a file can be written while values are still being copied, and is never
read again for its digests.
"""

import json
import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from meshwright.runtime.checkpoint.manifest import CHUNK_BYTES, LENGTH_BYTES, StoredFile
from meshwright.runtime.checkpoint.stored_index import DTYPES, METADATA
from meshwright.runtime.checkpoint.stored_stretch import Stretch


def in_file_order(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return stretches in the order of a file: wide types first, so that all are aligned, then by name."""
    return sorted(stretches, key=lambda of: (-of.memory[0].dtype.itemsize, of.name))


def pieces_of(stretch: Stretch, most_bytes: int) -> Iterator[torch.Tensor]:
    """Yield parts of a stretch's memory, one behind the other, of at most so many bytes each."""
    for memory in stretch.memory:
        yield from memory.detach().split(max(1, most_bytes // memory.dtype.itemsize))


def bytes_of(values: torch.Tensor) -> memoryview:
    """Return the bytes of a flat tensor, copied to the host if they are not there."""
    return values.cpu().contiguous().view(torch.uint8).numpy().data


class ShardWriter:
    """A file of stretches that are given in the order of ``in_file_order``. Use it in a ``with``. Raises OSError."""

    def __init__(self, path: Path, stretches: Sequence[Stretch]) -> None:
        self.path, self.header = path, header_of(stretches)
        self._digests: list[str] = []
        self._chunk, self._left = sha256(), 0
        self._size = 0

    def __enter__(self) -> Self:
        self._file = self.path.open("wb", buffering=0)
        self._file.write(self.header)
        self._digests.append(sha256(self.header).hexdigest())
        self._size, self._left = len(self.header), CHUNK_BYTES
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, content: memoryview) -> None:
        """Append bytes of the stretch that is next."""
        at = 0
        while at < len(content):
            written = self._file.write(content[at : at + self._left])
            part = content[at : at + written]
            self._chunk.update(part)
            at, self._left, self._size = at + written, self._left - written, self._size + written
            if not self._left:
                self._end_chunk()

    def finish(self) -> StoredFile:
        """Flush everything to disk and return size and digests."""
        if self._left < CHUNK_BYTES:
            self._end_chunk()
        os.fsync(self._file.fileno())
        return StoredFile(self._size, header_bytes=len(self.header), chunks=tuple(self._digests))

    def _end_chunk(self) -> None:
        self._digests.append(self._chunk.hexdigest())
        self._chunk, self._left = sha256(), CHUNK_BYTES


def header_of(stretches: Sequence[Stretch]) -> bytes:
    """Return the header of a file with these stretches, one behind the other."""
    shapes = {of.place: {"whole_shape": of.tensor.whole_shape, "shape": of.tensor.shape} for of in stretches}
    entries: dict[str, object] = {"__metadata__": {METADATA: json.dumps(shapes)}}
    at = 0
    for stretch in stretches:
        dtype = stretch.memory[0].dtype
        start, at = at, at + stretch.length * dtype.itemsize
        entries[stretch.name] = {
            "dtype": DTYPES[dtype],
            "shape": [stretch.length],
            "data_offsets": [start, at],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def write_shard(path: Path, stretches: Sequence[Stretch]) -> StoredFile:
    """Write stretches to a file that is on disk afterwards, and return its size and digests. Raises OSError."""
    ordered = in_file_order(stretches)
    with ShardWriter(path, ordered) as file:
        for stretch in ordered:
            for piece in pieces_of(stretch, CHUNK_BYTES):
                file.write(bytes_of(piece))
        return file.finish()
