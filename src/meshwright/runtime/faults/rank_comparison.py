"""Compare the ranks of a run: fingerprints of replicated state, busy and waited seconds, times of messages.

Between islands of replicas nothing is compared, since they differ on purpose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import torch.distributed as dist

from meshwright.program.synchronisation.islands import ISLAND, islands
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.diverging_copies import Copies, diverging
from meshwright.runtime.faults.fault import Fault, FaultError
from meshwright.runtime.faults.injected_faults import InjectedFaults
from meshwright.runtime.faults.link_search import LinkSearch
from meshwright.runtime.faults.replicated_state import CopyKey, ReplicatedState, replicated_state
from meshwright.runtime.faults.slow_ranks import slow_ranks
from meshwright.runtime.faults.step_series import StepSeconds, StepSeries

FINGERPRINTS = 16
"""Least fingerprints between two comparisons. Each reads all parameters, which shows in steps of few tokens."""
FaultKey = tuple[str, int | None, int | None]
"""Kind, rank and peer, which are reported once in a run."""


@dataclass
class Notes:
    """Notes of a rank for the others: steps and seconds since the last comparison, and its fingerprints.

    ``now_s`` is its clock; ``waits_longer``: operations among some ranks have begun to take longer.
    """

    steps: list[int] = field(default_factory=list)
    seconds: list[StepSeconds] = field(default_factory=list)
    copies: dict[CopyKey, int] = field(default_factory=dict)
    now_s: float = 0.0
    waits_longer: bool = False


@dataclass
class RankComparison:
    """The comparisons of one rank with ``ranks``; without ``every`` or with one rank there are none.

    ``peers`` are the ranks with the same layers, by rank. ``links`` is None without comparisons.
    """

    rank: Rank
    every: int
    injected: InjectedFaults
    ranks: tuple[int, ...] = field(init=False)
    peers: dict[int, list[int]] = field(init=False)
    state: ReplicatedState = field(init=False)
    links: LinkSearch | None = None
    series: StepSeries = field(default_factory=StepSeries)
    notes: Notes = field(default_factory=Notes)
    known: set[FaultKey] = field(default_factory=set)
    equal_step: int = -1
    _group: dist.ProcessGroup | None = None

    def __post_init__(self) -> None:
        self.ranks, self._group = _compared(self.rank)
        parts = self.rank.job.program.parts
        place = {rank: parts.pipeline_rank(rank) for rank in self.ranks}
        self.peers = {
            rank: [other for other in self.ranks if place[other] == place[rank]] for rank in self.ranks
        }
        self.state = replicated_state(self.rank, self.ranks, self._group)
        if len(self.ranks) > 1 and self.every:
            before = self.rank.interpreter.states.optimizer.step - 1
            self.links = LinkSearch(self.rank, self.ranks, self._group, self.injected.delay_link, before)
            self.injected.rates |= self.links.rates()

    @property
    def first(self) -> bool:
        """True on the first of the ranks that are compared."""
        return self.rank.place.rank == self.ranks[0]

    def add(self, step: int, spent: StepSeconds) -> None:
        """Record a step."""
        if self.links is None:
            return
        self.notes.steps.append(step)
        self.notes.seconds.append(spent)
        self.links.waits.add(step, self.rank.communicator.history.least_s)
        overlap = self.rank.job.program.steps_overlap  # states are final only after their validation
        if not overlap and step % max(1, self.every // FINGERPRINTS) == 0:
            self.state.record(step)

    def compare(self, step: int, *, suspected: bool) -> list[Fault]:
        """Return the slow ranks and links behind a step that are not known yet; every rank calls it.

        ``suspected``: steps have become longer. Raises FaultError on all ranks if copies differ.
        """
        if self.links is None or not self.notes.steps:
            return []
        if not self.state.behind or self.state.behind[-1][0] != step:
            self.state.record(step)
        longer = self.links.waits.longer(self.links.healthy_step)
        own = replace(self.notes, copies=self.state.last(), now_s=monotonic(), waits_longer=longer)
        everyone = self._gathered("notes on steps", own)
        self._refuse_diverging([notes.copies for notes in everyone])
        self.state.behind.clear()
        self.equal_step = step
        self.notes = Notes()
        by_rank = dict(zip(self.ranks, everyone, strict=True))
        self.series.add(own.steps, {rank: notes.seconds for rank, notes in by_rank.items()})
        suspected = suspected or any(notes.waits_longer for notes in everyone)
        found = slow_ranks(self.series, self._equal_work, self._known_slow)
        if self.links.worth_a_probe(everyone[0].now_s, suspected=suspected):
            found += self.links.search(step)
        new = [fault for fault in found if _key(fault) not in self.known]
        self.known |= {_key(fault) for fault in new}
        return new

    def _refuse_diverging(self, everyone: Sequence[Mapping[CopyKey, int]]) -> None:
        """Raise FaultError if copies differ; then all ranks exchange their fingerprints of all kept steps."""
        of_rank = dict(zip(self.ranks, everyone, strict=True))
        keys = sorted({key for copies in everyone for key in copies})
        differ = [key for key in keys if len({of_rank[rank][key] for rank in key[0]}) > 1]
        if not differ:
            return
        own = self.state.history(differ), self.state.by_name(differ)
        of = dict(zip(self.ranks, self._gathered("fingerprints of copies", own), strict=True))
        found: dict[int | None, Fault] = {}
        for key in differ:
            copies = Copies({r: of[r][0][key] for r in key[0]}, {r: of[r][1] for r in key[0]})
            for fault in diverging(copies, self.equal_step):
                found.setdefault(fault.rank, fault)
        raise FaultError(sorted(found.values(), key=lambda fault: fault.rank or 0))

    def _gathered(self, what: str, own: Any) -> list[Any]:
        everyone = [own] * len(self.ranks)
        self.rank.communicator.current.text = "between steps"
        with self.rank.communicator.naming(what, self.ranks):
            dist.all_gather_object(everyone, own, group=self._group)
        return everyone

    @property
    def _equal_work(self) -> dict[int, list[int]]:
        """The ranks with equal work by rank; none where replicas have unequal shares of a batch."""
        uneven = bool(self.rank.job.program.parts[0].batch_share)
        return {rank: [] for rank in self.ranks} if uneven else self.peers

    @property
    def _known_slow(self) -> set[int]:
        return {rank for kind, rank, _ in self.known if kind == "slow" and rank is not None}


def _key(fault: Fault) -> FaultKey:
    return fault.kind, fault.rank, fault.peer


def _compared(rank: Rank) -> tuple[tuple[int, ...], dist.ProcessGroup | None]:
    """Return the ranks that are compared with this one, and their group: all, or those of its island."""
    program, here = rank.job.program, rank.place.rank
    if not program.loose:
        return tuple(range(rank.place.ranks)), None
    own = next(ranks for ranks in islands(program.parts[0].grid, program.loose) if here in ranks)
    return own, rank.communicator.group(ISLAND).handle if len(own) > 1 else None
