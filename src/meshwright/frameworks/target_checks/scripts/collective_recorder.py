"""A fake process group for dry runs, with a record of the collectives that are sent over it.

``start`` makes this process one rank of a job of any size on torch's fake backend: collectives return at once with
nothing in them. ``Recorder`` notes every collective that the target issues, and ``report`` prints one JSON line::

    {"ran": true, "message": "", "ranks": 1024, "rank": 0, "parameters": 8030261248, "optimizer": …, "rows": …,
     "made": [[0, 1, …], …], "groups": [[0, 1, …], …], "collectives": [["all-gather", 1, 525336576], …],
     "seconds": 12.3}

or ``{"ran": false, "refused": …, "message": …}``: refused is what a script says that it can not do, before it tries.
A collective names its group by its place in ``groups`` and its *logical* bytes: the result of an all-gather, the
input of a reduce-scatter or all-reduce, one rank's send buffer of an all-to-all, a message. ``rows`` bounds what
cutting by whole rows may add: one row of each parameter that has no equal pieces. Needs torch and the standard library.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.tensor import DTensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KINDS = {
    "c10d._allgather_base_": ("all-gather", 1),
    "c10d.allgather_": ("all-gather", 1),
    "c10d.allgather_into_tensor_coalesced_": ("all-gather", 1),
    "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
    "c10d.reduce_scatter_": ("reduce-scatter", 1),
    "c10d.reduce_scatter_tensor_coalesced_": ("reduce-scatter", 1),
    "c10d.allreduce_": ("all-reduce", 0),
    "c10d.allreduce_coalesced_": ("all-reduce", 0),
    "c10d.reduce_": ("reduce", 0),
    "c10d.broadcast_": ("broadcast", 0),
    "c10d.alltoall_base_": ("all-to-all", 1),
    "c10d.alltoall_": ("all-to-all", 1),
    "c10d.send": ("send", 0),
    "c10d.recv_": ("receive", 0),
    "c10d.barrier": ("barrier", 0),
    "_c10d_functional.all_gather_into_tensor": ("all-gather", 0),
    "_c10d_functional.all_gather_into_tensor_coalesced": ("all-gather", 0),
    "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
    "_c10d_functional.reduce_scatter_tensor_coalesced": ("reduce-scatter", 0),
    "_c10d_functional.all_reduce": ("all-reduce", 0),
    "_c10d_functional.all_reduce_": ("all-reduce", 0),
    "_c10d_functional.all_reduce_coalesced": ("all-reduce", 0),
    "_c10d_functional.all_to_all_single": ("all-to-all", 0),
    "_c10d_functional.broadcast": ("broadcast", 0),
}
"""Operators of torch 2.13 and 2.14 → the kind, and which argument this rank sends."""
SILENT = ("_c10d_functional.wait_tensor", "_c10d_functional._wrap_tensor_autograd", "c10d.monitored_barrier_")
"""Operators of the same name spaces that send nothing."""


class DryRunUnsupportedError(Exception):
    """What can not be run in this way, said by name before the target is asked."""


@dataclass
class LocalCounts:
    """What a step leaves behind beside its collectives: elements of this rank."""

    parameters: int
    optimizer: int
    rows: int


class Recorder(TorchDispatchMode):
    """Notes the collectives that run inside it; an operator that it does not know is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[tuple[int, ...], int] = {}
        self.collectives: list[tuple[str, int, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Note a collective, and run every operator; a DTensor's operators come back as those of its pieces."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = f"{func.namespace}.{func._schema.name.split('::')[1]}"
        if func.namespace in ("c10d", "_c10d_functional") and name not in SILENT:
            self._note(name, func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, name, func, args) -> None:
        kind, sent = KINDS[name]
        members = _members(func, args)
        size = 0 if kind == "barrier" else sum(_bytes(t) for t in tree_leaves(args[sent]))
        if kind == "all-gather":
            size *= len(members)
        if kind in ("send", "receive"):
            members = tuple(sorted((dist.get_rank(), members[args[2]])))
        self.collectives.append((kind, self.groups.setdefault(members, len(self.groups)), size))


def _bytes(value: object) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def _members(func, args) -> tuple[int, ...]:
    """Return the ranks of the group that an operator runs on."""
    for parameter, value in zip(func._schema.arguments, args, strict=False):
        if parameter.name == "process_group":
            return tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(value)))
        if parameter.name == "group_name":
            return tuple(dist.get_process_group_ranks(_resolve_process_group(value)))
    raise LookupError(f"{func}: its group is not known")


def start(rank: int, ranks: int) -> None:
    """Make this process one rank of a job that is not there."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())


@contextlib.contextmanager
def fake_tensors() -> Iterator[None]:
    """Tensors that are made inside have a shape and no elements."""
    with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
        yield


def local_elements(tensors: Iterable[torch.Tensor]) -> int:
    """Elements that this rank holds."""
    return sum(_local(tensor).numel() for tensor in tensors)


def row_elements(tensors: Iterable[torch.Tensor]) -> int:
    """One row of each tensor that does not go up in equal pieces: what cutting by rows may add to a rank's share."""
    return sum(_local(t).numel() // max(1, _local(t).shape[0]) for t in tensors if t.dim() and not _even(t))


def _even(tensor: torch.Tensor) -> bool:
    """Whether the pieces are equal: as many of this rank's as there are pieces make the whole."""
    if not isinstance(tensor, DTensor):
        return True
    cut = (tensor.device_mesh.size(i) for i, placed in enumerate(tensor.placements) if placed.is_shard())
    return _local(tensor).numel() * prod(cut) == tensor.numel()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def report(run: Callable[[Path, int, Recorder], LocalCounts]) -> None:
    """Run a step of the folder and rank on the command line, and print the JSON line."""
    began, recorder = time.monotonic(), Recorder()
    try:
        counted = run(Path(sys.argv[1]), int(sys.argv[2]), recorder)
        line = {
            "ran": True,
            "message": "",
            "ranks": dist.get_world_size(),
            "rank": dist.get_rank(),
            "parameters": counted.parameters,
            "optimizer": counted.optimizer,
            "rows": counted.rows,
            "made": made_groups(),
            "groups": list(recorder.groups),
            "collectives": recorder.collectives,
        }
    except (Exception, SystemExit) as error:
        refused = isinstance(error, DryRunUnsupportedError)
        message = str(error) if refused else f"{type(error).__name__}: {error}"
        line = {"ran": False, "refused": refused, "message": message[:2000]}
    print(json.dumps(line | {"seconds": round(time.monotonic() - began, 1)}))


def made_groups() -> list[list[int]]:
    """Every group of this rank that the target made, by its members, each once."""
    known = (dist.get_process_group_ranks(group) for group in dist.distributed_c10d._world.pg_map)
    return [list(ranks) for ranks in sorted({tuple(r) for r in known if dist.get_rank() in r})]
