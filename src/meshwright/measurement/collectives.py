"""Time collectives by size in groups of ranks.

All ranks go through the same rounds, kinds and sizes in the same order; those without a group in a round wait. Before
a timing all ranks wait for each other, and they agree on the number of repeats and the end of a sweep, so that no rank
ever waits for one that has moved on. Sizes grow by four from 4 KiB. The result is the median over blocks of operations,
of the slowest member of a group.

Every round creates its groups on all ranks in one order, as torch requires; groups of equal ranks are
created once. Messages between partners use the group of all ranks: a group for each of many pairs would cost
more than the measurement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
import torch.distributed as dist

from meshwright.measurement.rank_groups import GroupRound, partner
from meshwright.measurement.rank_session import Session
from meshwright.measurement.results import CollectiveKind, CollectiveTime, Group, Scope
from meshwright.measurement.timing import block_s

SMALLEST_BYTES, GROWTH = 4096, 4
LARGEST_BYTES = {"cuda": 2**30, "cpu": 2**26}
PAIR_BYTES = {"cuda": 2**26, "cpu": 2**20}
FEWEST_SIZES = 4
ELEMENT_BYTES = 4
BLOCKS, MOST_IN_BLOCK = 5, 20
SHARE = 0.5
"""Fraction of a sweep's remaining time that one size may take."""

KINDS: dict[Scope, tuple[CollectiveKind, ...]] = {
    "part of node": ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"),
    "node": ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv"),
    "nodes": ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv"),
    "rail": ("all-reduce", "all-gather", "reduce-scatter"),
    "host pair": ("send-recv",),
    "device pair": ("send-recv",),
}
"""Kinds by scope; ranks of one rail never exchange experts' tokens, so there is no all-to-all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A kind at a size in a round, and its seconds on this rank, 0 if the rank had no group."""

    round: GroupRound
    kind: CollectiveKind
    bytes: int
    repeats: int
    own_s: float


@dataclass
class Collectives:
    """Runner of rounds that keeps their times."""

    session: Session
    made: dict[tuple[int, ...], dist.ProcessGroup | None] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    def play(self, played: GroupRound, budget_s: float) -> None:
        """Time every kind of a round, over all sizes that the budget allows; a round of pairs exchanges one message."""
        kind_of_device = self.session.device.type
        is_pairs = played.scope.endswith("pair")
        if not is_pairs:
            for group in played.groups:
                self._create(group)
        of = [PAIR_BYTES[kind_of_device]] if is_pairs else sizes(kind_of_device)
        kinds = KINDS[played.scope]
        for kind in kinds:
            self._sweep(played, kind, of, budget_s / len(kinds))

    def times(self) -> tuple[CollectiveTime, ...]:
        """Return all times, each of the slowest member of its group; the same on every rank."""
        everyone = self.session.gathered_numbers([sample.own_s for sample in self.samples])
        return tuple(
            _time(sample, group, max(everyone[rank][index] for rank in group.active(sample.kind)))
            for index, sample in enumerate(self.samples)
            for group in sample.round.groups
        )

    def _create(self, group: Group) -> None:
        """Create a group on all ranks, unless one with these ranks exists; the group of all exists already."""
        if group.ranks in self.made:
            return
        everyone = len(group.ranks) == self.session.place.ranks
        with self.session.naming(f"creation of the group {group.name}"):
            self.made[group.ranks] = dist.group.WORLD if everyone else dist.new_group(list(group.ranks))

    def _sweep(self, played: GroupRound, kind: CollectiveKind, of: Sequence[int], budget_s: float) -> None:
        group = played.group_of(self.session.place.rank)
        left = budget_s
        for number, size in enumerate(of):
            began = perf_counter()
            run = self._timer(group, kind, size)
            run(1)
            once = self.session.agree(run(1))
            if number >= FEWEST_SIZES and BLOCKS * once > left:
                self.unfinished.append(f"{kind} of {size} bytes and more, {played.name}: no time was left")
                return
            block = min(MOST_IN_BLOCK, max(1, int(SHARE * left / (BLOCKS * max(once, 1e-9)))))
            blocks = [self._block(run, block) for _ in range(BLOCKS)]
            self.samples.append(Sample(played, kind, size, block * BLOCKS, median(blocks)))
            left -= self.session.agree(perf_counter() - began)

    def _block(self, run: Callable[[int], float], times: int) -> float:
        self.session.agree(0.0)
        return run(times) / times

    def _timer(self, group: Group | None, kind: CollectiveKind, size: int) -> Callable[[int], float]:
        """Return a function that runs the collective so many times and returns the seconds; 0 on ranks that wait."""
        session = self.session
        if group is None or session.place.rank not in group.active(kind):
            return lambda times: 0.0
        what = f"{kind} of {size} bytes among ranks {_listed(group.ranks)}"
        if kind == "send-recv":
            work = _exchange(group, session, size)
        else:
            work = COLLECTIVES[kind](Buffers(size, len(group.ranks), session.device), self.made[group.ranks])

        def run(times: int) -> float:
            with session.naming(what):
                return block_s(work, session.device, times, lambda: session.finish(what))

        return run


def sizes(device_kind: str) -> list[int]:
    """Return the bytes of a sweep, growing."""
    found = [SMALLEST_BYTES]
    while found[-1] * GROWTH <= LARGEST_BYTES[device_kind]:
        found.append(found[-1] * GROWTH)
    return found


class Buffers:
    """A whole buffer of about ``size`` bytes and one rank's part of it."""

    def __init__(self, size: int, ranks: int, device: torch.device) -> None:
        elements = _elements(size, ranks)
        self.part = torch.zeros(elements, device=device)
        self.whole = torch.zeros(elements * ranks, device=device)
        self.other = torch.zeros_like(self.whole)


def _all_reduce(buffers: Buffers, group: dist.ProcessGroup | None) -> Callable[[], object]:
    return lambda: dist.all_reduce(buffers.whole, group=group)


def _all_gather(buffers: Buffers, group: dist.ProcessGroup | None) -> Callable[[], object]:
    return lambda: dist.all_gather_single(buffers.whole, buffers.part, group=group)


def _reduce_scatter(buffers: Buffers, group: dist.ProcessGroup | None) -> Callable[[], object]:
    return lambda: dist.reduce_scatter_single(buffers.part, buffers.whole, group=group)


def _all_to_all(buffers: Buffers, group: dist.ProcessGroup | None) -> Callable[[], object]:
    return lambda: dist.all_to_all_single(buffers.other, buffers.whole, group=group)


COLLECTIVES: dict[CollectiveKind, Callable[[Buffers, dist.ProcessGroup | None], Callable[[], object]]] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
}


def _exchange(group: Group, session: Session, size: int) -> Callable[[], object]:
    """Return a function that sends a message to the partner and receives one at once."""
    other = partner(group, session.place.rank)
    out = torch.zeros(_elements(size, 1), device=session.device)
    back = torch.zeros_like(out)

    def work() -> None:
        for request in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, out, other), dist.P2POp(dist.irecv, back, other)]
        ):
            request.wait()

    return work


def _time(sample: Sample, group: Group, seconds: float) -> CollectiveTime:
    """Return the time; sizes are rounded down to whole elements for each member."""
    parts = 1 if sample.kind == "send-recv" else len(group.ranks)
    whole = _elements(sample.bytes, parts) * parts * ELEMENT_BYTES
    return group.took(sample.kind, whole, seconds, sample.repeats)


def _elements(size: int, parts: int) -> int:
    """Return the elements of one of ``parts`` equal parts of a buffer."""
    return max(1, size // (ELEMENT_BYTES * parts))


def _listed(ranks: Sequence[int]) -> str:
    """Return ``0, 1, 2``, or ``0, 1, …, 15`` if there are many."""
    shown = [str(rank) for rank in ranks]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:2], "…", shown[-1]])
