"""Write the files of DCP with torch's own writer, in one process, each tensor read when it is written.

The planner lists chunks of tensors without their values, and reads each when torch asks for its bytes. Every chunk has
a file of its own: torch keeps all tensors of a file until the file is complete.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from meshwright.errors import InputError
from meshwright.runtime.checkpoint.formats.whole_states import WholeTensor
from meshwright.runtime.checkpoint.run_folder import write_errors

Keys = tuple[str, ...]
"""The keys of an entry in a nested state dict; DCP joins them with dots."""


@dataclass(frozen=True, slots=True)
class TensorChunk:
    """A part of a tensor to write: its first element along each dim, its shape, and how it is read."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True)
class ChunkedTensor:
    """A tensor to write in chunks, which together cover it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[TensorChunk, ...]

    @classmethod
    def of(cls, whole: WholeTensor) -> "ChunkedTensor":
        """Return a tensor as one chunk."""
        return cls(whole.shape, whole.dtype, (TensorChunk((0,) * len(whole.shape), whole.shape, whole.read),))


class _ReadLater(DefaultSavePlanner):
    """A planner that reads each chunk when it is to be written."""

    def __init__(self, tensors: Mapping[Keys, ChunkedTensor]) -> None:
        super().__init__()
        self._tensors = tensors
        self._chunks = {
            (".".join(keys), chunk.offsets): chunk for keys, of in tensors.items() for chunk in of.chunks
        }

    def create_local_plan(self) -> SavePlan:
        """Return the chunks and the values to write; the paths of keys let readers nest them again."""
        plan = super().create_local_plan()
        items = [
            _item(".".join(keys), of, chunk) for keys, of in self._tensors.items() for chunk in of.chunks
        ]
        paths = {".".join(keys): keys for keys in self._tensors}
        self.plan = SavePlan([*plan.items, *items], planner_data={**plan.planner_data, **paths})
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the chunk or the value of an entry."""
        chunk = self._chunks.get((index.fqn, tuple(index.offset or ())))
        return super().lookup_object(index) if chunk is None else chunk.read().contiguous()


def _item(key: str, of: ChunkedTensor, chunk: TensorChunk) -> WriteItem:
    """Return the entry of a chunk in a plan."""
    return WriteItem(
        index=MetadataIndex(key, chunk.offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.shape)),
            properties=TensorProperties(dtype=of.dtype),
            size=torch.Size(of.shape),
        ),
    )


def write_dcp(folder: Path, tensors: Mapping[Keys, ChunkedTensor], values: Mapping[Keys, object]) -> None:
    """Write a folder that holds nothing yet. Raises InputError if it cannot be written, or a source is damaged."""
    nested: dict[str, Any] = {}
    for keys, value in values.items():
        within = nested
        for key in keys[:-1]:
            within = within.setdefault(key, {})
        within[keys[-1]] = value
    planner = _ReadLater(tensors)
    writer = FileSystemWriter(folder, single_file_per_rank=False, per_thread_copy_ahead=0)
    with write_errors(folder), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="torch.distributed is disabled"
        )  # one process is what is meant
        try:
            save(nested, storage_writer=writer, planner=planner, no_dist=True)
        except CheckpointException as error:
            raise _cause(error) from None


def _cause(error: CheckpointException) -> BaseException:
    """Return what stopped torch's writer, if it is a source or the disk."""
    causes = [cause for cause, _ in error.failures.values()]
    return next((of for of in causes if isinstance(of, InputError | OSError)), error)
