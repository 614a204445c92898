"""List the stretches that the files of a checkpoint hold, from the files' own headers.

A header (safetensors) names every stretch with its dtype and its bytes in the file; its metadata has the shapes that
the cuts refer to. So a checkpoint can be read without the plan that wrote it.
"""

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from math import prod

import torch

from meshwright.errors import InputError
from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.checkpoint.chunked_file import ChunkedFile
from meshwright.runtime.checkpoint.manifest import LENGTH_BYTES, damage
from meshwright.runtime.checkpoint.shared_elements import Region

METADATA = "meshwright"
"""The only key of a file's metadata: safetensors does not always keep the order of several keys."""
DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int64: "I64",
}
"""The safetensors names of the dtypes that stretches have."""
DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()}
MOST_HEADER_BYTES = 2**27


@dataclass(frozen=True, slots=True)
class StoredStretch:
    """A stretch in a file: its state, its tensor, the elements, their dtype, and its first byte in the file."""

    file: str
    name: str
    state: str
    tensor: str
    region: Region
    dtype: torch.dtype
    offset: int


def stored_stretches(
    file: ChunkedFile, wanted: Callable[[str], bool] = lambda tensor: True
) -> Iterator[StoredStretch]:
    """Yield the stretches of a file that belong to wanted tensors, in the file's order. Raises InputError."""
    length = int.from_bytes(file.read(0, LENGTH_BYTES), "little")
    if not 0 < length <= min(MOST_HEADER_BYTES, file.stored.size_bytes - LENGTH_BYTES):
        raise _unreadable(file, f"its header has {length} bytes")
    try:
        header = json.loads(bytes(file.read(LENGTH_BYTES, length)))
        shapes = json.loads(header.pop("__metadata__")[METADATA])
        found = [
            _stretch(file, name, entry, shapes, LENGTH_BYTES + length)
            for name, entry in header.items()
            if wanted(name.split("/")[1])
        ]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise _unreadable(file, f"its header: {type(error).__name__} {str(error)[:100]}") from None
    yield from sorted(found, key=lambda stretch: stretch.offset)


def _stretch(
    file: ChunkedFile,
    name: str,
    entry: dict[str, list[int]],
    shapes: dict[str, dict[str, list[int]]],
    data: int,
) -> StoredStretch:
    state, tensor, cut, place = name.split("/")
    start, stop = map(int, place.split("-"))
    (length,), (first, last) = entry["shape"], entry["data_offsets"]
    dtype = DTYPE_OF[str(entry["dtype"])]
    whole_shape, shape = (tuple(map(int, shapes[f"{tensor}/{cut}"][key])) for key in ("whole_shape", "shape"))
    if not (start >= 0 and stop - start == length and last - first == length * dtype.itemsize):
        raise ValueError(f"{name} has {length} elements")
    if not (first >= 0 and data + last <= file.stored.size_bytes and stop <= prod(shape)):
        raise ValueError(f"{name} ends behind its end")
    region = Region(whole_shape, shape, _cuts(cut, whole_shape), start, length)
    return StoredStretch(file.name, name, state, tensor, region, dtype, data + first)


def _cuts(text: str, whole_shape: Collection[int]) -> tuple[Cut, ...]:
    """Parse ``whole``, or the dims and ranges of a part: ``0:4-8,1:0-32``, ``0:9+2+5``."""
    found, lengths = [], dict(enumerate(whole_shape))
    for part in () if text == "whole" else text.split(","):
        dim, places = part.split(":")
        length = lengths[int(dim)]
        if "-" in places:
            start, stop = map(int, places.split("-"))
            found.append(Cut(int(dim), start, stop))
            rows: tuple[int, ...] = (start, stop)
        else:
            rows = tuple(map(int, places.split("+")))
            found.append(Cut(int(dim), 0, len(rows), rows))
        if not 0 <= min(rows) <= max(rows) <= length:
            raise ValueError(f"{text} is no part of {length}")
    return tuple(found)


def _unreadable(file: ChunkedFile, reason: str) -> InputError:
    return InputError(damage(file.path, file.name, f"cannot be read: {reason}"))
