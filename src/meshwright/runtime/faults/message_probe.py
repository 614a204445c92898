"""Measure the time of a message between all pairs of ranks, by disjoint pairs in rounds.

In a round a pair first meets, so that neither waits for a rank that is late; then each sends the other messages of two
sizes several times, which the other answers with one byte. The time of a message is the shortest from its begin to the
answer: other work of a host only lengthens it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
import torch.distributed as dist

from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.message_matrix import Matrix, Pair, rounds

SMALL_BYTES, LARGE_BYTES = 8, 2**16
"""Sizes of the messages: the first shows latency, the second a usual pipeline message of a small model."""
REPEATS = 5
TAG = 77
"""Tag of probes, so that they match no message of a step."""


@dataclass(frozen=True)
class Probe:
    """Seconds of small and large messages by (sender, receiver), NaN where nothing was measured."""

    small: Matrix
    large: Matrix
    seconds: float


def probe(
    rank: Rank,
    ranks: Sequence[int],
    group: dist.ProcessGroup | None,
    delay: Callable[[Sequence[int], float], None] = lambda ranks, size: None,
    only: Collection[Pair] | None = None,
    repeats: int = REPEATS,
) -> Probe:
    """Measure all pairs of ``ranks``, or ``only`` those of these indices; every one of ``ranks`` calls it.

    ``delay`` is what an injected slow link does to a receiver.
    """
    began, here = perf_counter(), ranks.index(rank.place.rank)
    rows = np.full((2, len(ranks)), np.nan)
    pair_probe = PairProbe(rank, group, delay, repeats)
    with rank.communicator.naming("probe messages", tuple(ranks)):
        for pairs in rounds(len(ranks)):
            for pair in pairs:
                if here in pair and (only is None or pair in only):
                    other = pair[0] if pair[1] == here else pair[1]
                    rows[:, other] = pair_probe.measure(ranks[other], first=pair[0] == here)
        everyone: list[Matrix] = [rows] * len(ranks)
        dist.all_gather_object(everyone, rows, group=group)
    together = np.stack(everyone)
    return Probe(together[:, 0], together[:, 1], perf_counter() - began)


@dataclass
class PairProbe:
    """Probe messages of a rank with another one."""

    rank: Rank
    group: dist.ProcessGroup | None
    delay: Callable[[Sequence[int], float], None]
    repeats: int

    def measure(self, other: int, *, first: bool) -> tuple[float, float]:
        """Return the seconds of small and large messages to ``other``, which measures those to this rank."""
        self._exchange(other, SMALL_BYTES, first)
        found = []
        for size in (SMALL_BYTES, LARGE_BYTES):
            found.append(min(self._exchange(other, size, first) for _ in range(self.repeats)))
        return found[0], found[1]

    def _exchange(self, other: int, size: int, first: bool) -> float:
        """Send a message and receive one, in the order that ``first`` says; return the seconds of the one sent."""
        seconds = self._sent(other, size) if first else 0.0
        self._answered(other, size)
        return seconds if first else self._sent(other, size)

    def _sent(self, other: int, size: int) -> float:
        message, answer = self._memory(size), self._memory(1)
        began = perf_counter()
        sending = dist.isend(message, dst=other, group=self.group, tag=TAG)
        dist.recv(answer, src=other, group=self.group, tag=TAG)
        if message.device.type == "cuda":
            torch.cuda.synchronize(message.device)
        seconds = perf_counter() - began
        assert sending is not None
        sending.wait()
        return seconds

    def _answered(self, other: int, size: int) -> None:
        message = self._memory(size)
        dist.recv(message, src=other, group=self.group, tag=TAG)
        if message.device.type == "cuda":
            torch.cuda.synchronize(message.device)
        self.delay((self.rank.place.rank, other), size)
        answer = dist.isend(self._memory(1), dst=other, group=self.group, tag=TAG)
        assert answer is not None
        answer.wait()

    def _memory(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=self.rank.communicator.device)
