"""The communicator of an emulated rank: real messages and collectives that carry times instead of tensors.

A message is four numbers: its arrival time and the result it stands for, so that a wrong message is an error and not
only a wrong time. The sender's link carries one message at a time: it stamps max(link free, now) + the message's
seconds. A collective is an all-reduce (maximum) of its members' begin times: it begins when the last one does. A
collective that the Program overlaps with compute delays nobody when it begins. The Program's bytes are logged as in a
real run.

==========================  ===========================================================================================
GATHER, overlapped          runs until its end concurrently with the stage's first forward pass, which it lengthens; a
                            unit's gather is waited for, and lengthens all passes that overlap it
REDUCE of a unit,           begins when compute and data-parallel stream are free; the next one waits for it
overlapped
REDUCE, overlapped          began after the first block of the last backward pass; that pass is lengthened, and a last
                            block's share of the reduction remains after it; whoever ends the reduction waits
all others                  begin when compute and data-parallel stream are free, and occupy both
==========================  ===========================================================================================
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from meshwright.play.clocks import FLOATS
from meshwright.play.overlap import reduction_slowdown
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective, CollectiveKind
from meshwright.program.program import matching_receive
from meshwright.runtime.comm.communicator import Communicator, NamedWork, Splits, Work
from meshwright.runtime.comm.process_groups import MESSAGES, Axes, ProcessGroups, message_pairs
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.modelled_durations import ModelledTimes
from meshwright.schedules.action import Action, parse_actions

STAMP_NUMBERS = 4
"""Arrival time, kind of result (0 activation, 1 gradient), receiving stage, micro-batch."""


@dataclass
class Ending:
    """An operation in progress: the first ``wait`` ends it, on the network and on the clock."""

    work: Work | None
    end: Callable[[], None]
    ended: bool = False

    def wait(self) -> None:
        """Return when the operation has ended."""
        if not self.ended:
            self.ended = True
            if self.work is not None:
                self.work.wait()
            self.end()

    def is_completed(self) -> bool:
        """Return whether the network's part is done."""
        return self.work is None or self.work.is_completed()


@dataclass
class Reduction:
    """A reduction that overlaps the backward pass: its action's time, the end of its operations so far, its least end.

    ``left`` is the number of operations that have not begun: those of dense gradients and of experts alternate.
    """

    issued: float
    end: float
    least: float
    left: int

    def next_start(self, now: float) -> float:
        """Return the begin of an operation that is started now: the end of the last one, plus any wait beyond it."""
        return self.end + max(0.0, now - max(self.issued, self.end))


class EmulatedGroups(ProcessGroups):
    """Groups of processes that stand for ranks: those of one process need no torch group."""

    def new(self, ranks: Sequence[int], rank: int, timeout_s: float) -> dist.ProcessGroup | None:
        """Create a group of several ranks."""
        return super().new(ranks, rank, timeout_s) if len(ranks) > 1 else None


@dataclass
class EmulatedCommunicator(Communicator):
    """One emulated rank's communication with all others."""

    clock: Clock = field(kw_only=True)
    times: ModelledTimes = field(kw_only=True)
    reductions: dict[int, Reduction] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        self._owners = {
            id(item): (Action(kind, stage), at)
            for (stage, kind), items in self.program.collectives.items()
            for at, item in enumerate(items)
        }

    # -- collectives --------------------------------------------------------------------------------------------

    def meet_all(self, moment: float) -> float:
        """Wait for all ranks and return the latest of their times."""
        stamp = _moment(moment)
        dist.all_reduce(stamp, op=dist.ReduceOp.MAX)
        return stamp.item()

    def meet(self, axes: Axes, moment: float, kind: str = "", part: int = 0) -> float:
        """Wait for the ranks of a group and return the latest of their times."""
        stamp = _moment(moment)
        work = self.latest(stamp, axes, f"an exchange over {'·'.join(axes)}", kind, part)
        if work is not None:
            work.wait()
        return stamp.item()

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
        """Start a collective of the step, leaving the tensors unchanged. Before the step begins it takes no time."""
        if self.clock.origin is None:
            return Ending(None, lambda: None)
        action, at = self._owners[id(item)]
        seconds = self.times.exchanges[action.stage, action.kind]
        self._note(item.kind, item.axes, item.what, float(item.logical_bytes), self.ranks_of(item.axes))
        if action.kind not in self.program.overlapped:
            return self._in_line(action, item, seconds[at])
        if action.kind == "GATHER":
            return self._overlap_gather(action, item, seconds[at])
        return self._overlap_reduce(action, item, seconds, at)

    def _in_line(self, action: Action, item: Collective, seconds: float) -> Ending:
        clock = self.clock
        stamp = _moment(max(clock.now, clock.data_parallel))
        of_stage = action.stage is not None

        def end() -> None:
            start = clock.work(seconds, stamp.item())
            clock.data_parallel = max(clock.data_parallel, clock.now)
            clock.record(action, start, clock.now, "data-parallel" if of_stage else "compute")

        ending = Ending(self.latest(stamp, item.axes, item.what, part=item.part), end)
        if of_stage:
            ending.wait()
        return ending

    def _overlap_gather(self, action: Action, item: Collective, seconds: float) -> Ending:
        clock, stage = self.clock, action.stage
        assert stage is not None
        stamp = _moment(max(clock.begin(), clock.data_parallel))
        clock.data_parallel = stamp.item() + seconds

        def end() -> None:
            start, ended = stamp.item(), stamp.item() + seconds
            clock.gathered[stage] = max(clock.gathered.get(stage, 0.0), ended)
            clock.data_parallel = max(clock.data_parallel, ended)
            clock.record(action, start, ended, "data-parallel")

        return Ending(self.latest(stamp, item.axes, item.what, part=item.part), end)

    def _overlap_reduce(self, action: Action, item: Collective, seconds: Sequence[float], at: int) -> Ending:
        clock, stage = self.clock, action.stage
        assert stage is not None
        if at == 0:
            self.reductions[stage] = self._reduction(stage, seconds)
        reduction = self.reductions[stage]
        stamp = _moment(max(clock.data_parallel, reduction.next_start(clock.begin())))
        reduction.left -= 1
        least = 0.0 if reduction.left else reduction.least
        reduction.end = clock.data_parallel = max(stamp.item() + seconds[at], least)

        def end() -> None:
            reduction.end = max(stamp.item() + seconds[at], least)
            clock.data_parallel = max(clock.data_parallel, reduction.end)
            clock.record(action, stamp.item(), reduction.end, "data-parallel")
            clock.wait_until(reduction.end)

        return Ending(self.latest(stamp, item.axes, item.what, part=item.part), end)

    def _reduction(self, stage: int, operations: Sequence[float]) -> "Reduction":
        """Return a reduction that overlapped the pass that has just ended, and delay that pass.

        With units, the reduction begins now.
        """
        if self.program.parts.by_unit:
            return Reduction(self.clock.now, self.clock.now, self.clock.now, len(operations))
        clock, blocks = self.clock, len(self.program.sections[stage].blocks)
        (began, length), seconds = clock.last_pass, sum(operations)
        clock.work(reduction_slowdown(seconds, length, blocks, self.times.overlap_slowdown, FLOATS))
        end, least = began + length / blocks, clock.now + seconds / blocks
        return Reduction(clock.now, end, least, len(operations))

    def broadcast(self, stamp: torch.Tensor, axes: Axes, what: str, kind: str, root: int) -> Work:
        """Start to broadcast one rank's stamp to a group."""
        group = self.groups.over_axes[kind, 0, axes]
        with self.naming(what, group.ranks):
            work = dist.broadcast(stamp, src=root, group=group.handle, async_op=True)
        assert work is not None
        return NamedWork(work, self, what, group.ranks)

    def latest(
        self, stamp: torch.Tensor, axes: Axes, what: str, kind: str = "", part: int = 0
    ) -> Work | None:
        """Start to find the latest stamp of a group; None if this process stands for all of the group."""
        group = self.groups.over_axes.get((kind, part, axes))
        if group is None or len(group.ranks) == 1:
            return None
        with self.naming(what, group.ranks):
            work = dist.all_reduce(stamp, op=dist.ReduceOp.MAX, group=group.handle, async_op=True)
        assert work is not None
        return NamedWork(work, self, what, group.ranks)

    # -- messages -----------------------------------------------------------------------------------------------

    def send(
        self, tensor: torch.Tensor, target: int, what: str, logical_bytes: int, width: int = ACTIVATION_BYTES
    ) -> Work:
        """Start a send; the message arrives a message's time after its link is free."""
        clock, (action,) = self.clock, parse_actions(what)
        seconds = self.times.message_seconds(action)
        start = clock.begin(clock.links.get(target, 0.0))
        clock.wait_until(start)
        arrival = clock.links[target] = start + seconds
        self._note("p2p", MESSAGES, what, logical_bytes, (self.rank, target))
        with self.naming(f"send {what}", (self.rank, target)):
            sent = dist.isend(tensor.copy_(timestamp_message(arrival, matching_receive(action))), dst=target)
        assert sent is not None
        work = NamedWork(sent, self, f"send {what}", (self.rank, target))
        clock.record(action, start, arrival, "send")
        clock.wait_until(start + self.times.send_occupancy * seconds)
        return Ending(work, lambda: clock.wait_until(arrival))

    def receive(self, tensor: torch.Tensor, source: int, what: str) -> Work:
        """Start a receive; waiting for it waits until the message's arrival time."""
        (action,) = parse_actions(what)

        def end() -> None:
            expect(tensor, action)
            self.clock.wait_until(tensor.flatten()[0].item())

        return Ending(super().receive(tensor, source, what), end)

    def send_sums(self, sums: torch.Tensor, target: int, what: str) -> Work:
        """Start to send the sums' arrival time in place of the sums."""
        return super().send_sums(torch.full_like(sums, self.clock.begin() + self.times.sums_s), target, what)

    def receive_sums(self, sums: torch.Tensor, source: int, what: str) -> Work:
        """Start to receive sums, all zero, that are available at their arrival time."""

        def end() -> None:
            self.clock.wait_until(sums[0].item())
            sums.zero_()

        return Ending(super().receive_sums(sums, source, what), end)


def warm(communicator: EmulatedCommunicator, empty: Callable[[], torch.Tensor]) -> None:
    """Use every connection once, because first use is slow."""
    for kind, part, axes in sorted(communicator.groups.over_axes):
        communicator.meet(axes, 0.0, kind, part)
    here = communicator.pipeline_rank
    peers = communicator.program.parts.pipeline_of(communicator.rank)
    pairs = sorted(message_pairs(communicator.program))
    works = [dist.isend(empty(), peers[b]) for a, b in pairs if a == here]
    works += [dist.irecv(empty(), peers[a]) for a, b in pairs if b == here]
    for work in works:
        assert work is not None
        work.wait()


def _moment(moment: float) -> torch.Tensor:
    return torch.tensor([moment], dtype=torch.float64)


def timestamp_message(arrival: float, taken: Action) -> torch.Tensor:
    """Return the message that replaces a tensor: its arrival time, and the receive that takes it."""
    assert taken.stage is not None
    assert taken.micro_batch is not None
    numbers = [arrival, float(taken.kind.endswith("_B")), taken.stage, taken.micro_batch]
    return torch.tensor(numbers, dtype=torch.float64).view(1, 1, STAMP_NUMBERS)


def expect(message: torch.Tensor, taken: Action) -> None:
    """Check that a message is the one that the action takes."""
    found, expected = message.flatten()[1:].tolist(), timestamp_message(0.0, taken).flatten()[1:].tolist()
    assert found == expected, f"{taken}: the message is {found}, expected {expected}"
