"""Write the files of DCP with torch's own writer, in one process, each tensor read when it is written.

The planner lists chunks of tensors without their values, and reads each when torch asks for its bytes. Every chunk has
a file of its own: torch keeps all tensors of a file until the file is complete. Values are in one file together.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

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

    def __init__(self, tensors: Mapping[Keys, ChunkedTensor], values: Mapping[Keys, object]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)  # values stay as they are
        self._tensors = tensors
        self._paths = {".".join(keys): keys for keys in (*tensors, *values)}
        self._chunks = {
            (".".join(keys), chunk.offsets): chunk for keys, of in tensors.items() for chunk in of.chunks
        }

    def create_local_plan(self) -> SavePlan:
        """Return the chunks and the values to write; the paths of keys let readers nest them again."""
        plan = super().create_local_plan()
        items = [
            _item(".".join(keys), of, chunk) for keys, of in self._tensors.items() for chunk in of.chunks
        ]
        self.flatten_state_dict = True  # from here on it says that the paths of keys are stored
        self.plan = SavePlan([*plan.items, *items], planner_data=self._paths)
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


class _ValuesTogether(FileSystemWriter):
    """A writer with one file for all values, and one for each chunk."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write both kinds, and return what was written."""
        chunks = [item for item in plan.items if item.type == WriteItemType.SHARD]
        values = [item for item in plan.items if item.type != WriteItemType.SHARD]
        written: Future[list[WriteResult]] = Future()
        results: list[WriteResult] = []
        for together, items in ((True, values), (False, chunks)):
            self.single_file_per_rank = together
            prefix = type(plan.storage_data)("__values_" if together else "__0_")
            part = replace(plan, items=items, storage_data=prefix)
            results += super().write_data(part, planner).wait()
        written.set_result(results)
        return written


def write_dcp(folder: Path, tensors: Mapping[Keys, ChunkedTensor], values: Mapping[Keys, object]) -> None:
    """Write a folder that holds nothing yet. Raises InputError if it cannot be written, or a source is damaged."""
    planner = _ReadLater(tensors, values)
    writer = _ValuesTogether(folder, per_thread_copy_ahead=0)
    with write_errors(folder), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="torch.distributed is disabled"
        )  # one process is what is meant
        try:
            save(
                {".".join(keys): of for keys, of in values.items()},
                storage_writer=writer,
                planner=planner,
                no_dist=True,
            )
        except CheckpointException as error:
            raise _cause(error) from None


def _cause(error: CheckpointException) -> BaseException:
    """Return what stopped torch's writer, if it is a source or the disk."""
    causes = [cause for cause, _ in error.failures.values()]
    return next((of for of in causes if isinstance(of, InputError | OSError)), error)
