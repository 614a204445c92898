"""Token shards: files of token ids and nothing else, memory-mapped and never read whole.

``NAME.npy``   a NumPy file with one dimension of uint16 or uint32.
``NAME.bin``   the ids one after another, little-endian, with the header file ``NAME.bin.json``:
               ``{"dtype": "uint16", "tokens": 250000}``. The token cache uses this form.

Document borders are the end-of-document tokens among the ids; the files store no others.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import InputError, Problem
from meshwright.plans.files.yaml_text import read_file
from meshwright.runtime.data.input_files import DataFile, unreadable

Ids = NDArray[np.unsignedinteger]
IdType = np.dtype[np.unsignedinteger]

DTYPES: dict[str, IdType] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
MAX_TOKENS = 2**48
HEADER_SUFFIX = ".json"
HEADER_EXAMPLE = '{"dtype": "uint16", "tokens": 250000}'


def open_shard(file: DataFile) -> Ids:
    """Open the ids of a shard, at least one. Raises InputError."""
    ids = _open_numpy(file.path) if file.form == "numpy" else _open_binary(file.path)
    if not len(ids):
        raise InputError(Problem("data", str(file.path), "holds no token", "leave it out"))
    return ids


def _open_numpy(path: Path) -> Ids:
    try:
        ids = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise InputError(unreadable(path, error)) from None
    except Exception as error:  # the header is a Python literal: a bad one raises many kinds of errors
        reason = f"is no NumPy array of ids: {str(error)[:120]}"
        raise InputError(Problem("data", str(path), reason, "write it with numpy.save")) from None
    if ids.ndim != 1 or ids.dtype.newbyteorder("<") not in DTYPES.values():
        found = f"{ids.ndim} dimension{'' if ids.ndim == 1 else 's'} of {ids.dtype}"
        rule = f"must have one dimension of uint16 or uint32, has {found}"
        raise InputError(Problem("data", str(path), rule, "save ids.astype(numpy.uint32).ravel()"))
    return ids


def _open_binary(path: Path) -> Ids:
    header = _read_header(path.with_name(path.name + HEADER_SUFFIX))
    try:
        found = path.stat().st_size
        if found == header.size_bytes > 0:
            return np.memmap(path, header.dtype, "r", shape=(header.tokens,))
    except OSError as error:
        raise InputError(unreadable(path, error)) from None
    if found != header.size_bytes:
        expected = f"{header.tokens} tokens of {header.dtype.itemsize} bytes"
        rule = f"has {found} bytes; its header says {expected}"
        raise InputError(Problem("data", str(path), rule, "write the file and its header again"))
    return np.empty(0, header.dtype)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a ``.bin`` shard."""

    dtype: IdType
    tokens: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the shard."""
        return self.tokens * self.dtype.itemsize


def _read_header(path: Path) -> Header:
    hint = f"write {HEADER_EXAMPLE} there"
    text = read_file(path, "data", hint)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and data.keys() == {"dtype", "tokens"} and data["dtype"] in list(DTYPES):
        tokens = data["tokens"]
        if type(tokens) is int and 0 <= tokens < MAX_TOKENS:
            return Header(DTYPES[data["dtype"]], tokens)
    rule = "must be an object with `dtype` (uint16 or uint32) and `tokens` and nothing else"
    raise InputError(Problem("data", str(path), rule, hint))


@dataclass
class ShardWriter:
    """Writer of ids into ``.bin`` shards of at most ``limit`` tokens, ``folder/00000.bin`` and so on."""

    folder: Path
    dtype: IdType
    limit: int = 2**28
    tokens: int = 0
    _open: BinaryIO | None = field(default=None, init=False)
    _inside: int = field(default=0, init=False)
    _shards: int = field(default=0, init=False)

    def write(self, ids: NDArray[np.uint32]) -> None:
        """Append ids; a full shard ends, even inside a document."""
        while len(ids):
            if self._open is None:
                self._open = open(self._path(), "xb")  # noqa: SIM115 - closed when the shard is full
            part, ids = ids[: self.limit - self._inside], ids[self.limit - self._inside :]
            self._open.write(part.astype(self.dtype).tobytes())
            self._inside += len(part)
            self.tokens += len(part)
            if self._inside == self.limit:
                self.close()

    def close(self) -> None:
        """Close the current shard and write its header."""
        if self._open is None:
            return
        self._open.close()
        header = {"dtype": self.dtype.name, "tokens": self._inside}
        self._path().with_name(self._path().name + HEADER_SUFFIX).write_text(json.dumps(header) + "\n")
        self._open, self._inside, self._shards = None, 0, self._shards + 1

    def _path(self) -> Path:
        return self.folder / f"{self._shards:05d}.bin"
