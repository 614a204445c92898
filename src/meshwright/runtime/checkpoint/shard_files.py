"""The state that a rank holds between steps, as tensors of a safetensors file.

A *stretch* is a contiguous part of a parameter or of one of its moments, or a whole buffer: elements start … stop of
the flattened tensor of one tp rank. Buffers have no moments. A moment in fp16 or fp8 has a second entry, its scale. The
name of a stretch in a file is
``STATE/PARAMETER/CUT/START-STOP``. CUT is ``whole`` or the dim and range of the slice: by tp (``0:24-48``), by the
pipeline ranks for a vocabulary table spread over them, or by ep and etp for experts (``0:4-8,1:0-32``; with an expert
order ``0:9+2+5+0``). The file's metadata holds the shapes, whole and local, under ``PARAMETER/CUT``, so the files can
be put together again without the plan that wrote them. Each stretch is only in the file of its first owner. States of
exchanges between replicas are stretches too (``exchange_states.py``).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from meshwright.errors import InputError, Problem
from meshwright.program.rank_units.unit_layout import Tensor, UnitLayout
from meshwright.runtime.checkpoint.exchange_states import exchange_states
from meshwright.runtime.checkpoint.manifest import damage
from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.executor.rank_plan import layer_of
from meshwright.runtime.fsync import give_usual_rights
from meshwright.runtime.state.on_host.offloaded_unit import parameters_at
from meshwright.runtime.state.shard_owner import first_owner, is_second_copy

DTYPES: Mapping[torch.dtype, str] = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int64: "I64",
}
"""The safetensors names of the dtypes that shards have."""
PARAMETER, BUFFER = "parameter", "buffer"
COPY = "copy_of_"
"""Begins the state of a tied table that the head holds in another layout than the embedding."""
METADATA = "meshwright"
"""The only key of a file's metadata: safetensors does not always keep the order of several keys."""


def stretches(rank: Rank) -> Iterator[Stretch]:
    """Yield every parameter, moment and buffer stretch that a rank holds, and those of the base that steps change.

    States of exchanges follow, which must have been settled.
    """
    optimizer = rank.interpreter.states.optimizer
    for unit in rank.plan.trained_units:
        tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
        for name, of, here in unit.spans():
            owner = first_owner(
                rank.job.program, rank.place.rank, unit.layout, tensors[name], unit.communicator.part
            )
            moments = list(optimizer.moments_at(unit, here))
            copied = is_second_copy(rank.job.program, unit.communicator.part_index, tensors[name])
            copy = COPY if copied else ""
            yield Stretch(f"{copy}{PARAMETER}", tensors[name], of.start, owner, parameters_at(unit, here))
            for key, memory, _ in moments:
                yield Stretch(f"{copy}{key}", tensors[name], of.start, owner, memory)
            for key, _, scale in moments:
                if scale is not None:
                    yield Stretch(f"{copy}{key}_scale", tensors[name], of.start, owner, (scale,))
    for base, changed, of, here in rank.interpreter.states.changes.spans():
        owner = first_owner(rank.job.program, rank.place.rank, base.layout, changed, base.communicator.part)
        yield Stretch(PARAMETER, changed, of.start, owner, (base.elements[here],))
    for name, buffer in rank.plan.buffers.items():
        tensor = Tensor(name, shape := tuple(buffer.shape), shape, (), False, False, trained=False)
        part = rank.plan.part_of_layer(layer_of(name))
        owner = first_owner(rank.job.program, rank.place.rank, UnitLayout((tensor,), 0, 1), tensor, part)
        yield Stretch(BUFFER, tensor, 0, owner, (buffer,))
    yield from exchange_states(rank)


def rank_file(rank: int) -> str:
    """Return the name of the file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


def write_stretches(path: Path, found: Iterable[Stretch]) -> None:
    """Write stretches to a safetensors file. Raises OSError."""
    held = list(found)
    shapes = {
        stretch.place: {"whole_shape": stretch.tensor.whole_shape, "shape": stretch.tensor.shape}
        for stretch in held
    }
    tensors = {stretch.name: stretch.values.detach().cpu() for stretch in held}
    try:
        save_file(tensors, path, metadata={METADATA: json.dumps(shapes)})
        give_usual_rights(path)
    except SafetensorError as error:
        raise OSError(" ".join(str(error).split())[:200]) from None


class StretchFiles:
    """The shard files of a checkpoint, opened on first use. Use it in a ``with``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._handles: dict[int, safe_open] = {}
        self._names: dict[int, frozenset[str]] = {}

    def __enter__(self) -> "StretchFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def problems(self, stretch: Stretch) -> Iterator[Problem]:
        """Yield the reasons why a stretch cannot be read. Raises InputError if its file cannot be opened."""
        file, handle = rank_file(stretch.owner), self._handle(stretch.owner)
        if stretch.name not in self._names[stretch.owner]:
            yield damage(self.path, file, f"does not hold {stretch.name}")
            return
        stored = handle.get_slice(stretch.name)
        found = list(stored.get_shape()), str(stored.get_dtype())
        if found != ([stretch.length], DTYPES[stretch.memory[0].dtype]):
            yield damage(self.path, file, f"holds {stretch.name} as {found[1]} of shape {found[0]}")

    def read(self, pieces: Iterable[Stretch]) -> None:
        """Copy stretches from the files into this rank's memory. Raises InputError."""
        for stretch in pieces:
            try:
                stretch.set(self._handle(stretch.owner).get_tensor(stretch.name))
            except (OSError, SafetensorError) as error:
                raise self._unreadable(stretch.owner, error) from None

    def _handle(self, owner: int) -> safe_open:
        if owner not in self._handles:
            try:
                handle = safe_open(self.path / rank_file(owner), framework="pt")
            except (OSError, SafetensorError) as error:
                raise self._unreadable(owner, error) from None
            self._handles[owner] = self._open.enter_context(handle)
            self._names[owner] = frozenset(handle.keys())
        return self._handles[owner]

    def _unreadable(self, owner: int, error: Exception) -> InputError:
        return InputError(damage(self.path, rank_file(owner), f"cannot be read: {error}"))
