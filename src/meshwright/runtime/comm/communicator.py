"""Run, log and name every collective and point-to-point message of a rank.

Each collective is one of the Program's: a kind, axes and logical bytes. The communicator looks up this rank's group on
these axes, compares the tensor's size with the bytes that the Program counts, and starts the operation; ``Work.wait``
ends it. Bytes are counted at the Program's width (2 for activations and parameters, 4 for gradients and statistics),
whatever dtype a run computes in, so an fp64 proof checks the same figures. An error says which operation failed.

The groups are those of ``process_groups.py``. Each kind of exchange of a spread vocabulary has its own: ``aside``
returns the communicator that uses them, concurrently with the rank's other work.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.lowering.step_collectives import NORM_BYTES
from meshwright.program.pass_items import Collective, CollectiveKind
from meshwright.program.program import Program
from meshwright.program.program_parts import Part
from meshwright.runtime.comm.process_groups import MESSAGES, Axes, Group, ProcessGroups
from meshwright.runtime.faults.operation_history import Operation, OperationHistory
from meshwright.schedules.action import Action

Splits = tuple[list[int], list[int]]
SUMS_TAG = 1
"""Tag of messages that carry sums, for back ends where all messages between two ranks share a connection."""


class Work(Protocol):
    """An operation in progress."""

    def wait(self) -> object:
        """Return when the operation has ended."""

    def is_completed(self) -> bool:
        """Return whether the operation has ended."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A logged collective or message: its action, ranks and logical bytes.

    ``routed``: its size depends on the router's choices. ``entry``: the entry of ``synchronise`` that encodes it.
    """

    action: str
    kind: str
    axes: Axes
    what: str
    logical_bytes: float
    ranks: tuple[int, ...]
    routed: bool = False
    entry: int | None = None


@dataclass
class CurrentAction:
    """The action that the interpreter executes, as text."""

    text: str = ""


@dataclass
class Communicator:
    """One rank's communication with all others.

    ``current`` is the interpreter's current action, for the log and for errors. ``part_index`` is the part of the
    Program whose meshes give the groups over axes.

    ``kind`` is the kind of exchange whose groups are used; "" stands for everything that ranks do in sequence.
    ``history`` has the last operations with their times, for finding faults.
    """

    rank: int
    program: Program
    device: torch.device
    current: CurrentAction = field(default_factory=CurrentAction)
    kind: str = ""
    part_index: int = 0
    log: list[Traffic] = field(default_factory=list)
    groups: ProcessGroups = field(default_factory=ProcessGroups)
    history: OperationHistory = field(default_factory=OperationHistory)

    def aside(self, action: Action) -> "Communicator":
        """Return a communicator for an exchange that runs concurrently; it shares log and groups."""
        return replace(self, current=CurrentAction(str(action)), kind=action.kind)

    def on(self, part_index: int) -> "Communicator":
        """Return the communicator of a part of the Program; it shares everything but the groups over axes."""
        return self if part_index == self.part_index else replace(self, part_index=part_index)

    @property
    def part(self) -> Part:
        """The part of the Program whose meshes give the groups over axes."""
        return self.program.parts[self.part_index]

    @property
    def pipeline_rank(self) -> int:
        """Position of this rank in the pipeline."""
        return self.program.parts.pipeline_rank(self.rank)

    def ranks_of(self, axes: Axes) -> tuple[int, ...]:
        """Return the ranks of this rank's group over ``axes``."""
        group = self.groups.over_axes.get((self.kind, self.part_index, axes))
        return group.ranks if group else (self.rank,)

    def place_in(self, axes: Axes) -> int:
        """Return this rank's index in its group over ``axes``."""
        return self.ranks_of(axes).index(self.rank)

    def start(
        self,
        item: Collective,
        tensor: torch.Tensor,
        width: int,
        out: torch.Tensor | None = None,
        elements: int | None = None,
        largest: bool = False,
        root: int | None = None,
        splits: Splits | None = None,
        by: CollectiveKind | None = None,
        continues: bool = False,
        encoded: bool = False,
    ) -> Work:
        """Start a collective and return its handle.

        ``tensor`` is this rank's part of an all-gather, the whole input of a reduce-scatter or all-to-all, or what is
        all-reduced, reduced or broadcast in place; ``out`` receives the result of the first three. ``splits`` are the
        rows that an all-to-all sends to each member and receives from it. ``elements`` is the logical number of
        elements where buffers are padded. ``width`` is the Program's bytes per element. ``largest`` takes the maximum
        instead of the sum. ``root`` is the rank that receives a reduction, or broadcasts. ``by`` is the operation that
        does it, if another one than the item names; if it ``continues`` one that was logged, it is not logged again.
        ``encoded``: the item counts bytes of encoded values, not those of this run's buffers.
        """
        group = self.groups.over_axes[self.kind, item.part, item.axes]
        if elements is None:
            elements = tensor.numel() * (len(group.ranks) if item.kind == "all-gather" else 1)
        size = float(item.logical_bytes) if encoded else elements * width
        if not continues:
            self._note(
                item.kind, item.axes, item.what, size, group.ranks, routed=item.routed, entry=item.entry
            )
        assert continues or item.routed or size == item.logical_bytes, (
            f"{self.current.text}: {item.kind} of {item.what} moves {size} bytes, "
            f"the Program says {item.logical_bytes}"
        )
        what = f"{item.kind} of {item.what}"
        operation = self.history.begin(
            (item.kind, item.what, *item.axes), what, size, group.ranks, aside=bool(self.kind)
        )
        with self.naming(what, group.ranks):
            work = self._begin(by or item.kind, tensor, out, group.handle, largest, root, splits)
        return NamedWork(work, self, what, group.ranks, operation)

    def _begin(
        self,
        kind: CollectiveKind,
        tensor: torch.Tensor,
        out: torch.Tensor | None,
        group: dist.ProcessGroup | None,
        largest: bool = False,
        root: int | None = None,
        splits: Splits | None = None,
    ) -> Work:
        if kind == "all-to-all":
            sent, received = splits or (None, None)
            return dist.all_to_all_single(out, tensor, received, sent, group=group, async_op=True)
        if kind == "broadcast":
            return dist.broadcast(tensor, src=root, group=group, async_op=True)
        if kind == "reduce":
            return dist.reduce(tensor, dst=root, group=group, async_op=True)
        if kind == "all-gather":
            return dist.all_gather_single(out, tensor, group=group, async_op=True)
        if kind == "reduce-scatter":
            return dist.reduce_scatter_single(out, tensor, group=group, async_op=True)
        assert kind == "all-reduce", f"{kind} is not run yet"
        op = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        return dist.all_reduce(tensor, op=op, group=group, async_op=True)

    def send(
        self, tensor: torch.Tensor, target: int, what: str, logical_bytes: int, width: int = ACTIVATION_BYTES
    ) -> Work:
        """Start a send to a rank; the tensor must not change until the work has ended."""
        assert tensor.numel() * width == logical_bytes, f"{what} has another size"
        self._note("p2p", MESSAGES, what, logical_bytes, (self.rank, target))
        group = self.groups.channels.get((self.rank, target))
        operation = _message(self, f"send {what}", logical_bytes, (self.rank, target))
        with self.naming(f"send {what}", (self.rank, target)):
            work = dist.isend(tensor, dst=target, group=group)
        assert work is not None
        return NamedWork(work, self, f"send {what}", (self.rank, target), operation)

    def receive(self, tensor: torch.Tensor, source: int, what: str) -> Work:
        """Start a receive from a rank."""
        group = self.groups.channels.get((source, self.rank))
        operation = _message(self, f"receive {what}", tensor.nbytes, (source, self.rank))
        with self.naming(f"receive {what}", (source, self.rank)):
            work = dist.irecv(tensor, src=source, group=group)
        assert work is not None
        return NamedWork(work, self, f"receive {what}", (source, self.rank), operation)

    def send_sums(self, sums: torch.Tensor, target: int, what: str) -> Work:
        """Start a send of a step's sums to a neighbouring pipeline rank."""
        pair = self.rank, target
        self._note("p2p", MESSAGES, what, NORM_BYTES, pair)
        operation = _message(self, f"send {what}", NORM_BYTES, pair)
        with self.naming(what, pair):
            work = dist.isend(sums, dst=target, group=self.groups.sum_channels.get(pair), tag=SUMS_TAG)
        assert work is not None
        return NamedWork(work, self, what, pair, operation)

    def receive_sums(self, sums: torch.Tensor, source: int, what: str) -> Work:
        """Start a receive of a step's sums from a neighbouring pipeline rank."""
        pair = source, self.rank
        operation = _message(self, f"receive {what}", NORM_BYTES, pair)
        with self.naming(what, pair):
            work = dist.irecv(sums, src=source, group=self.groups.sum_channels.get(pair), tag=SUMS_TAG)
        assert work is not None
        return NamedWork(work, self, what, pair, operation)

    def group(self, axes: Axes) -> Group:
        """Return this rank's group over ``axes``."""
        return self.groups.over_axes[self.kind, self.part_index, axes]

    def _note(
        self,
        kind: str,
        axes: Axes,
        what: str,
        logical_bytes: float,
        ranks: tuple[int, ...],
        *,
        routed: bool = False,
        entry: int | None = None,
    ) -> None:
        self.log.append(Traffic(self.current.text, kind, axes, what, logical_bytes, ranks, routed, entry))

    @contextmanager
    def naming(self, what: str, ranks: tuple[int, ...]):  # type: ignore[no-untyped-def]
        """Add the operation, action and ranks to torch errors raised inside the block."""
        try:
            yield
        except RuntimeError as error:
            first = next(iter(str(error).splitlines()), "")
            raise RunError(
                f"rank {self.rank}, {self.current.text}: {what} among ranks {', '.join(map(str, ranks))}: {first}"
            ) from error


def connected(rank: int, program: Program, device: torch.device, timeout_s: float = 120.0) -> Communicator:
    """Return the communicator of a rank with all its groups; every rank must call it."""
    groups = ProcessGroups()
    groups.connect(program, rank, timeout_s, accelerated=device.type == "cuda")
    return Communicator(rank, program, device, groups=groups)


def _message(communicator: Communicator, what: str, logical_bytes: float, pair: tuple[int, int]) -> Operation:
    """Record that a message from the first rank of a pair to the second begins."""
    receives, aside = pair[1] == communicator.rank, bool(communicator.kind)
    key = ("receive from", str(pair[0])) if receives else ("send to", str(pair[1]))
    return communicator.history.begin(key, what, logical_bytes, pair, receives=receives, aside=aside)


@dataclass(frozen=True, slots=True)
class NamedWork:
    """A torch work handle whose error names the operation."""

    work: Work
    communicator: Communicator
    what: str
    ranks: tuple[int, ...]
    operation: Operation | None = None

    def wait(self) -> None:
        """Return when the operation has ended. Raises RunError if it failed or timed out."""
        with self.communicator.naming(self.what, self.ranks):
            wait = partial(self.communicator.groups.wait, self.work)
            if self.operation is None:
                wait()
            else:
                self.communicator.history.wait(self.operation, wait)

    def is_completed(self) -> bool:
        """Return whether the operation has ended."""
        return self.work.is_completed()
