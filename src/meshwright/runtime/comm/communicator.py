"""Run, log and name every collective and point-to-point message of a rank.

Each collective is one of the Program's: a kind, axes and logical bytes. The communicator looks up this rank's group on
these axes, compares the tensor's size with the bytes that the Program counts, and starts the operation; ``Work.wait``
ends it. Bytes are counted at the Program's width (2 for activations and parameters, 4 for gradients and statistics),
whatever dtype a run computes in, so an fp64 proof checks the same figures. An error says which operation failed.

All ranks create the groups in one order when a run begins. Each kind of exchange of a spread vocabulary has its own
groups: ``aside`` returns the communicator that uses them, concurrently with the rank's other work. On accelerators,
messages between two pipeline ranks have one group per direction: with a shared one, plain sends and receives of 1F1B
can deadlock under NCCL. The sums of steps that are validated afterwards have their own channels.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.model.operators.operator_types import Dispatch
from meshwright.program.layouts.rank_mesh import grid_with
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.lowering.optimizer_post_validation import sum_neighbours
from meshwright.program.lowering.step_collectives import NORM_BYTES
from meshwright.program.model_states.bidirectional_gradient_reduction import MIRRORED
from meshwright.program.pass_items import Collective, CollectiveKind, Compute, exchanges_of, legs_of
from meshwright.program.program import Program
from meshwright.schedules.action import EXCHANGES, Action

Axes = tuple[str, ...]
Splits = tuple[list[int], list[int]]
EXPERT_RANKS: Axes = ("etp", "ep")
"""The axes whose ranks together hold all experts."""
SEQUENCE_RANKS: Axes = ("cp", "tp")
"""The axes whose ranks together hold a sequence outside the tensor-parallel region."""
MESSAGES: Axes = ("pp",)
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

    ``routed``: its size depends on the router's choices.
    """

    action: str
    kind: str
    axes: Axes
    what: str
    logical_bytes: float
    ranks: tuple[int, ...]
    routed: bool = False


@dataclass(frozen=True)
class Group:
    """Ranks that communicate together; ``handle`` is torch's process group, None for all ranks."""

    ranks: tuple[int, ...]
    handle: dist.ProcessGroup | None


@dataclass
class Communicator:
    """One rank's communication with all others.

    ``action`` is the interpreter's current action, for the log and for errors.

    ``kind`` is the kind of exchange whose groups are used; "" stands for everything that ranks do in sequence.
    """

    rank: int
    program: Program
    device: torch.device
    timeout_s: float = 120.0
    action: str = ""
    kind: str = ""
    log: list[Traffic] = field(default_factory=list)
    _groups: dict[tuple[str, Axes], Group] = field(default_factory=dict)
    _channels: dict[tuple[int, int], dist.ProcessGroup | None] = field(default_factory=dict)
    _sum_channels: dict[tuple[int, int], dist.ProcessGroup | None] = field(default_factory=dict)

    def connect(self) -> None:
        """Create all groups that the Program names; every rank does so in the same order."""
        for kind, axes in sorted(_groups_used(self.program)):
            for ranks in groups_of(self.program, axes):
                handle = self._new_group(ranks, kind)
                if self.rank in ranks:
                    self._groups[kind, axes] = Group(ranks, handle)
        if self.device.type == "cuda":
            for source, target in sorted(_neighbours(self.program)):
                self._channels[source, target] = self._new_group((source, target))
            for pair in sorted(sum_neighbours(self.program.grid)) if self.program.steps_overlap else ():
                self._sum_channels[pair] = self._new_group(pair)

    def aside(self, action: Action) -> "Communicator":
        """Return a communicator for an exchange that runs concurrently; it shares log and groups."""
        return replace(self, action=str(action), kind=action.kind)

    @property
    def pipeline_rank(self) -> int:
        """Position of this rank in the pipeline."""
        return self.program.grid.coordinates(self.rank)["pp"]

    def _new_group(self, ranks: Sequence[int], kind: str = "") -> dist.ProcessGroup | None:
        if not kind and len(ranks) == self.program.grid.ranks:
            return None
        made = dist.new_group(list(ranks), timeout=timedelta(seconds=self.timeout_s))
        return made if self.rank in ranks else None

    def ranks_of(self, axes: Axes) -> tuple[int, ...]:
        """Return the ranks of this rank's group over ``axes``."""
        group = self._groups.get((self.kind, axes))
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
    ) -> Work:
        """Start a collective and return its handle.

        ``tensor`` is this rank's part of an all-gather, the whole input of a reduce-scatter or all-to-all, or what is
        all-reduced, reduced or broadcast in place; ``out`` receives the result of the first three. ``splits`` are the
        rows that an all-to-all sends to each member and receives from it. ``elements`` is the logical number of
        elements where buffers are padded. ``width`` is the Program's bytes per element. ``largest`` takes the maximum
        instead of the sum. ``root`` is the rank that receives a reduction, or broadcasts. ``by`` is the operation that
        does it, if another one than the item names; if it ``continues`` one that was logged, it is not logged again.
        """
        group = self.group(item.axes)
        if elements is None:
            elements = tensor.numel() * (len(group.ranks) if item.kind == "all-gather" else 1)
        if not continues:
            self._note(item.kind, item.axes, item.what, elements * width, group.ranks, routed=item.routed)
        assert continues or item.routed or elements * width == item.logical_bytes, (
            f"{self.action}: {item.kind} of {item.what} moves {elements * width} bytes, "
            f"the Program says {item.logical_bytes}"
        )
        what = f"{item.kind} of {item.what}"
        with self.naming(what, group.ranks):
            work = self._begin(by or item.kind, tensor, out, group.handle, largest, root, splits)
        return NamedWork(work, self, what, group.ranks)

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

    def send(self, tensor: torch.Tensor, target: int, what: str) -> Work:
        """Start a send to a rank; the tensor must not change until the work has ended."""
        assert tensor.numel() * ACTIVATION_BYTES == self.program.p2p_bytes, f"{what} has another size"
        self._note("p2p", MESSAGES, what, self.program.p2p_bytes, (self.rank, target))
        group = self._channels.get((self.rank, target))
        with self.naming(f"send {what}", (self.rank, target)):
            work = dist.isend(tensor, dst=target, group=group)
        assert work is not None
        return NamedWork(work, self, f"send {what}", (self.rank, target))

    def receive(self, tensor: torch.Tensor, source: int, what: str) -> Work:
        """Start a receive from a rank."""
        group = self._channels.get((source, self.rank))
        with self.naming(f"receive {what}", (source, self.rank)):
            work = dist.irecv(tensor, src=source, group=group)
        assert work is not None
        return NamedWork(work, self, f"receive {what}", (source, self.rank))

    def send_sums(self, sums: torch.Tensor, target: int, what: str) -> Work:
        """Start a send of a step's sums to a neighbouring pipeline rank."""
        pair = self.rank, target
        self._note("p2p", MESSAGES, what, NORM_BYTES, pair)
        with self.naming(what, pair):
            work = dist.isend(sums, dst=target, group=self._sum_channels.get(pair), tag=SUMS_TAG)
        assert work is not None
        return NamedWork(work, self, what, pair)

    def receive_sums(self, sums: torch.Tensor, source: int, what: str) -> Work:
        """Start a receive of a step's sums from a neighbouring pipeline rank."""
        pair = source, self.rank
        with self.naming(what, pair):
            work = dist.irecv(sums, src=source, group=self._sum_channels.get(pair), tag=SUMS_TAG)
        assert work is not None
        return NamedWork(work, self, what, pair)

    def group(self, axes: Axes) -> Group:
        """Return this rank's group over ``axes``."""
        return self._groups[self.kind, axes]

    def _note(
        self,
        kind: str,
        axes: Axes,
        what: str,
        logical_bytes: float,
        ranks: tuple[int, ...],
        *,
        routed: bool = False,
    ) -> None:
        self.log.append(Traffic(self.action, kind, axes, what, logical_bytes, ranks, routed))

    @contextmanager
    def naming(self, what: str, ranks: tuple[int, ...]):  # type: ignore[no-untyped-def]
        """Add the operation, action and ranks to torch errors raised inside the block."""
        try:
            yield
        except RuntimeError as error:
            first = next(iter(str(error).splitlines()), "")
            raise RunError(
                f"rank {self.rank}, {self.action}: {what} among ranks {', '.join(map(str, ranks))}: {first}"
            ) from error


@dataclass(frozen=True, slots=True)
class NamedWork:
    """A torch work handle whose error names the operation."""

    work: Work
    communicator: Communicator
    what: str
    ranks: tuple[int, ...]

    def wait(self) -> None:
        """Return when the operation has ended. Raises RunError if it failed or timed out."""
        with self.communicator.naming(self.what, self.ranks):
            self.work.wait()

    def is_completed(self) -> bool:
        """Return whether the operation has ended."""
        return self.work.is_completed()


def groups_of(program: Program, axes: Axes) -> list[tuple[int, ...]]:
    """Return all groups over ``axes``.

    ``axes`` may be of the attention mesh or the experts' mesh, the world, the two ends of a pipeline (``tied``), or its
    ranks with the same layers (``MIRRORED``).
    """
    if axes == ("world",):
        return [tuple(range(program.grid.ranks))]
    if axes == ("tied",):
        first, last = program.end_ranks
        stages = program.grid.groups(("pp",))
        return [(int(row[first]), int(row[last])) for row in stages]
    if axes == MIRRORED:
        rows = program.grid.groups(("pp",))
        return [tuple(int(row[rank]) for rank in ranks) for row in rows for ranks in program.mirrors]
    return [
        tuple(int(rank) for rank in row)
        for row in grid_with(axes, program.grid, program.expert_grid).groups(axes)
    ]


def _groups_used(program: Program) -> set[tuple[str, Axes]]:
    """Return the (kind of exchange, axes) of every collective of the Program, and the group of all ranks."""
    found: set[tuple[str, Axes]] = {
        (kind if kind in EXCHANGES else "", c.axes)
        for (_, kind), collectives in program.collectives.items()
        for c in collectives
    }
    found |= {("", ("world",))} if program.grid.ranks > 1 else set()
    for items in program.block_items.values():
        for item in items:
            exchanges = exchanges_of(item)
            legs = [leg for exchange in exchanges for leg in legs_of(exchange, program.expert_grid)]
            found |= {("", exchange.axes) for exchange in (*exchanges, *legs)}
            routed = isinstance(item, Compute) and isinstance(item.operator, Dispatch)
            count_axes = (EXPERT_RANKS, SEQUENCE_RANKS) if routed else ()
            found |= {("", axes) for axes in count_axes if program.group_size(axes) > 1}
    for body in program.bodies.values():
        found |= {("", c.axes) for segment in body for c in segment.overlapped}
    return found


def _neighbours(program: Program) -> set[tuple[int, int]]:
    """Return the (sender, receiver) pairs of ranks that exchange pipeline messages."""
    pairs = {(edge.source_rank, edge.target_rank) for edge in program.edges()}
    return {(int(row[a]), int(row[b])) for row in program.grid.groups(("pp",)) for a, b in pairs}
