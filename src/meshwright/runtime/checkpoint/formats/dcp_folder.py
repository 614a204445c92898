"""Read the folder of a DCP checkpoint tensor by tensor: ``.metadata`` says which bytes of which file a tensor has.

Tensors and values are archives of ``torch.save`` inside the files; torch opens them with ``weights_only``. A tensor of
several chunks is put together here, so memory holds one tensor and one chunk of it.
"""

import io
import pickle
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.formats.restricted_unpickler import (
    refused_class,
    unpickled,
    unpickled_archive,
)
from meshwright.runtime.checkpoint.run_folder import in_short, read_errors

METADATA = ".metadata"
MOST_METADATA_BYTES = 2**30
REFUSED_GLOBAL = re.compile(r"GLOBAL ([\w.]+)\.(\w+)")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a tensor in a file: its first element along each dim, its shape, its bytes. A value has no shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    file: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class DcpTensor:
    """A whole tensor of a checkpoint."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[Chunk, ...]


class DcpFolder:
    """A DCP checkpoint. ``tensors`` and ``values`` list what it holds by key. Raises InputError for damaged metadata.

    ``trust``: classes that are not known are unpickled too.
    """

    def __init__(self, path: Path, *, trust: bool = False) -> None:
        self.path, self.trust = path, trust
        with read_errors(path / METADATA), (path / METADATA).open("rb") as file:
            content = file.read(MOST_METADATA_BYTES)
        metadata = unpickled(content, in_short(path / METADATA), trust=trust)
        self.tensors: dict[str, DcpTensor] = {}
        self.values: dict[str, Chunk] = {}
        try:
            self._index(metadata)
        except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
            rule = f"lacks what DCP writes: {type(error).__name__} {str(error)[:100]}"
            raise self._damaged(METADATA, rule) from None
        problems = list(self._file_problems())
        if problems:
            raise InputError(problems)

    def tensor(self, key: str) -> torch.Tensor:
        """Return a whole tensor. Raises InputError if its bytes are damaged or missing."""
        return self.part(key, tuple(slice(0, size) for size in self.tensors[key].shape))

    def part(self, key: str, cut: tuple[slice, ...]) -> torch.Tensor:
        """Return the elements in slices of all dims, from the chunks that have some of them. Raises InputError."""
        of = self.tensors[key]
        found = torch.zeros([s.stop - s.start for s in cut], dtype=of.dtype)
        for chunk in of.chunks:
            bounds = [
                (max(s.start, o), min(s.stop, o + n))
                for s, o, n in zip(cut, chunk.offsets, chunk.shape, strict=True)
            ]
            if any(start >= stop for start, stop in bounds):
                continue
            held = _loaded_tensor(*self._content(key, chunk))
            if not isinstance(held, torch.Tensor) or held.shape != chunk.shape or held.dtype != of.dtype:
                raise self._damaged(chunk.file, f"holds something else than {key} at byte {chunk.start}")
            here = tuple(slice(a - s.start, b - s.start) for (a, b), s in zip(bounds, cut, strict=True))
            there = tuple(slice(a - o, b - o) for (a, b), o in zip(bounds, chunk.offsets, strict=True))
            found[here].copy_(held[there])
        return found

    def value(self, key: str) -> Any:
        """Return a value that is no tensor. Raises InputError if it is damaged, or has classes that are not known."""
        return unpickled_archive(*self._content(key, self.values[key]), trust=self.trust)

    def _content(self, key: str, chunk: Chunk) -> tuple[bytes, str]:
        """Return the bytes of a tensor's chunk or of a value, and a name for messages."""
        with read_errors(self.path / chunk.file), (self.path / chunk.file).open("rb") as file:
            file.seek(chunk.start)
            return file.read(chunk.length), f"{in_short(self.path / chunk.file)}: {key}"

    def _index(self, metadata: Any) -> None:
        """List tensors and values from the metadata."""
        places = {(of.fqn, getattr(of, "offset", None)): at for of, at in metadata.storage_data.items()}
        for key, of in metadata.state_dict_metadata.items():
            if not isinstance(key, str):
                raise ValueError(f"{key!r} is no key")
            if not hasattr(of, "chunks"):
                self.values[key] = self._chunk((), (), places[key, None])
                continue
            shape, dtype = _whole_numbers(of.size), getattr(torch, of.properties.values[0])
            chunks = tuple(
                self._chunk(
                    offsets := _whole_numbers(c.offsets), _whole_numbers(c.sizes), places[key, offsets]
                )
                for c in of.chunks
            )
            self._check_cover(key, shape, chunks)
            self.tensors[key] = DcpTensor(shape, dtype, chunks)

    def _chunk(self, offsets: tuple[int, ...], shape: tuple[int, ...], at: Any) -> Chunk:
        start, length = _whole_numbers((at.offset, at.length))
        if Path(at.relative_path).name != at.relative_path:
            raise ValueError(f"{at.relative_path!r} is no file of this folder")
        if getattr(at, "transform_descriptors", None):
            raise ValueError(f"{at.relative_path} is compressed or otherwise transformed")
        return Chunk(offsets, shape, at.relative_path, start, length)

    def _check_cover(self, key: str, shape: tuple[int, ...], chunks: tuple[Chunk, ...]) -> None:
        """Raise ValueError if chunks leave the tensor, or do not have as many elements as it has."""
        for chunk in chunks:
            if not len(chunk.offsets) == len(chunk.shape) == len(shape) or any(
                o + n > of for o, n, of in zip(chunk.offsets, chunk.shape, shape, strict=True)
            ):
                raise ValueError(f"a chunk of {key} lies outside of its shape {list(shape)}")
        there = sum(prod(chunk.shape) for chunk in chunks)
        if there != prod(shape):
            raise ValueError(f"{there} of the {prod(shape)} elements of {key} are there")

    def _file_problems(self) -> Iterator[Problem]:
        """Yield a problem for each file that is missing or shorter than the metadata says."""
        ends: dict[str, int] = {}
        for chunk in (*self.values.values(), *(c for of in self.tensors.values() for c in of.chunks)):
            ends[chunk.file] = max(ends.get(chunk.file, 0), chunk.start + chunk.length)
        for name, end in sorted(ends.items()):
            try:
                size = (self.path / name).stat().st_size
            except OSError as error:
                yield damage(self.path / name, f"cannot be read: {error.strerror or error}")
                continue
            if size < end:
                yield damage(self.path / name, f"is truncated: {size} bytes of {end}")

    def _damaged(self, name: str, rule: str) -> InputError:
        return InputError(damage(self.path / name, rule))


def damage(path: Path, rule: str) -> Problem:
    """Return the problem of a damaged file of a source."""
    return Problem("source", in_short(path), rule, "the folder as it was written")


def _loaded_tensor(content: bytes, name: str) -> object:
    """Return what ``torch.save`` wrote if it is a tensor or plain data. Raises InputError for anything else."""
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for bytes that are no archive
        text = " ".join(str(error).split())
        if isinstance(error, pickle.UnpicklingError) and (found := REFUSED_GLOBAL.search(text)):
            raise refused_class(name, *found.groups()) from None
        rule = f"cannot be read: {type(error).__name__} {text[:150]}"
        raise InputError(Problem("source", name, rule, "the file as it was written")) from None


def _whole_numbers(values: Iterable[object]) -> tuple[int, ...]:
    """Return values that must be numbers from 0 on."""
    found = tuple(values)
    if any(type(value) is not int or value < 0 for value in found):
        raise ValueError(f"{list(found)} are no sizes")
    return found  # type: ignore[return-value]
