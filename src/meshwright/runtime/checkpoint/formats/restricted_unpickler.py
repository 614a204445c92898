"""Read pickled metadata of checkpoints without running code that is pickled in it.

A pickle names classes and functions to call. Here a name is looked up in a table of those that DCP and Megatron write,
and answered by an inert record or by a plain function of this module: nothing is imported, and nothing of torch is
built or changed. Every other name is refused.
"""

import io
import pickle
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Any

from meshwright.errors import InputError, Problem

TRUST = "--trust, which runs what is pickled there; only for files whose origin you know"
METADATA = "torch.distributed.checkpoint.metadata"
FILES = "torch.distributed.checkpoint.filesystem"
PLANNER = "torch.distributed.checkpoint.planner"
MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
ENUMS, RERUN = "megatron.core.transformer.enums", "megatron.core.rerun_state_machine"
MOST_BYTES = 2**28
"""Most bytes of a pickled value."""
RECORDS = (
    *((METADATA, name) for name in ("Metadata", "MetadataIndex", "TensorStorageMetadata", "StorageMeta")),
    *((METADATA, name) for name in ("BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties")),
    *((FILES, name) for name in ("_StorageInfo", "_StoragePrefix")),
    *((PLANNER, name) for name in ("SavePlan", "WriteItem", "TensorWriteData", "BytesIOWriteData")),
    *((MEGATRON, name) for name in ("MCoreMetadata", "MCoreSavePlan")),
    *(
        (ENUMS, name)
        for name in ("AttnBackend", "CudaGraphModule", "CudaGraphScope", "InferenceCudaGraphScope")
    ),
    *((RERUN, name) for name in ("RerunDiagnostic", "RerunMode", "RerunState")),
    ("megatron.core.enums", "ModelType"),
    ("megatron.core.optimizer.optimizer_config", "OptimizerConfig"),
    ("argparse", "Namespace"),
    ("types", "SimpleNamespace"),
    ("signal", "Signals"),
    ("_io", "BytesIO"),
    ("torch._utils", "_rebuild_tensor_v2"),
    *(("torch", f"{name}Storage") for name in ("Double", "Float", "BFloat16", "Half", "Long", "Int", "Byte")),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("numpy.dtypes", "UInt32DType"),
)
"""Classes and functions whose results become records."""
DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    )
)
"""Names of torch's dtypes, which become text."""


class Record:
    """The attributes of a pickled object, without its class. Equal and hashable by name and offset, as a DCP index."""

    def __init__(self, *values: object) -> None:
        self.values = values

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)
        elif isinstance(state, tuple):  # the properties of a tensor, or the content of a buffer
            self.values = state
        else:
            raise pickle.UnpicklingError("a record has no such state")

    def _key(self) -> tuple[object, object]:
        return getattr(self, "fqn", id(self)), getattr(self, "offset", None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def unpickled(content: bytes, name: str, *, trust: bool = False) -> Any:
    """Return what is pickled in ``content``, known classes as records.

    Raises InputError for other classes, which ``trust`` admits, and for what is no pickle. ``name`` is the file's.
    """
    try:
        return _Unpickler(content, name, trust=trust).load()
    except InputError:
        raise
    except Exception as error:  # whatever a damaged pickle makes of the unpickler
        rule = f"cannot be read: {type(error).__name__} {' '.join(str(error).split())[:100]}"
        raise InputError(Problem("source", name, rule, "the file as it was written")) from None


def unpickled_archive(content: bytes, name: str, *, trust: bool = False) -> Any:
    """Return what ``torch.save`` pickled into an archive, as ``unpickled`` does; a buffer in it is opened too."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (entry,) = (of for of in archive.infolist() if of.filename.endswith("/data.pkl"))
            if entry.file_size > MOST_BYTES:
                raise ValueError(f"{entry.file_size} bytes of metadata")
            inner = archive.read(entry)
    except (ValueError, OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error) as error:
        rule = f"cannot be read: {type(error).__name__} {str(error)[:100]}"
        raise InputError(Problem("source", name, rule, "the file as it was written")) from None
    found = unpickled(inner, name, trust=trust)
    buffer = isinstance(found, Record) and found.values and found.values[0]
    return unpickled_archive(buffer, name, trust=trust) if isinstance(buffer, bytes) else found


class _Unpickler(pickle.Unpickler):
    """An unpickler that looks names up in a table."""

    def __init__(self, content: bytes, name: str, *, trust: bool) -> None:
        super().__init__(io.BytesIO(content))
        self._name, self._trust, self._known = name, trust, known_globals()

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a known name. Raises InputError for others."""
        if (module, name) in self._known:
            return self._known[module, name]
        if module == "torch" and name in DTYPES:
            return name
        if self._trust:
            return super().find_class(module, name)
        raise refused_class(self._name, module, name)

    def persistent_load(self, pid: object) -> Any:
        """Return None for the elements of a tensor: they are not read with values."""
        return None


def refused_class(file: str, module: str, name: str) -> InputError:
    """Return the refusal of a class or function that a file's pickle names."""
    rule = f"asks for {module}.{name}, which no metadata of DCP or Megatron needs: it may be harmful"
    return InputError(Problem("source", file, rule, TRUST))


def known_globals() -> dict[tuple[str, str], Callable[..., object]]:
    """Return what stands in for each known name; records have classes of their own for every call."""

    class Inert(Record):
        """A class of this call alone, since a pickle can set attributes of classes."""

    return {
        **dict.fromkeys(RECORDS, Inert),
        (METADATA, "_MEM_FORMAT_ENCODING"): _text,
        (PLANNER, "WriteItemType"): _text,
        ("torch", "Size"): _sizes,
        ("torch.serialization", "_get_layout"): _text,
        ("collections", "OrderedDict"): OrderedDict,
        ("pathlib", "PosixPath"): _path,
        ("pathlib", "PurePosixPath"): _path,
        ("pathlib._local", "PosixPath"): _path,
    }


def _sizes(values: Iterable[int] = ()) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _text(value: object) -> str:
    return str(value)


def _path(*parts: str) -> str:
    return str(PurePosixPath(*parts))
