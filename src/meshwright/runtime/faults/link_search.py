"""Look for slow links of a run by probing messages between all pairs of its ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch.distributed as dist

from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.faults.injected_faults import LinkRate
from meshwright.runtime.faults.link_waits import LinkWaits, longer_since
from meshwright.runtime.faults.message_matrix import Pair, named_by_matrix, slow_pairs
from meshwright.runtime.faults.message_probe import LARGE_BYTES, REPEATS, Probe, probe
from meshwright.runtime.faults.step_series import FLOOR_S

HEALTHY_REPEATS, AGAIN_REPEATS = 10, 10
"""Messages of each pair at the begin of a run and in a second and third look, where more certainty is worth more."""
LOOKS = 3
"""Probes that must all find a link slow: a host that is busy for a moment is not a slow link."""
MOST_OF_TIME = 1 / 500
"""Part of a run's time that probes without a suspicion may take; all telemetry may take 1 %."""


@dataclass
class LinkSearch:
    """The search of one rank. ``healthy`` was measured at the begin; no link was slow behind ``healthy_step``."""

    rank: Rank
    ranks: Sequence[int]
    group: dist.ProcessGroup | None
    delay: Callable[[Sequence[int], float], None]
    healthy_step: int
    healthy: Probe = field(init=False)
    waits: LinkWaits = field(default_factory=LinkWaits)
    last_s: float | None = None

    def __post_init__(self) -> None:
        self.healthy = self._probe(repeats=HEALTHY_REPEATS)

    def worth_a_probe(self, now_s: float, *, suspected: bool) -> bool:
        """Return whether a link is suspected or a probe costs little by now; the same on all ranks.

        ``now_s`` is the first rank's clock.
        """
        if self.last_s is None:
            self.last_s = now_s
        spent_s = float(np.nansum(self.healthy.large)) * 4 * REPEATS / len(self.ranks)
        affordable = (now_s - self.last_s) * MOST_OF_TIME > spent_s
        found = suspected or affordable
        self.last_s = now_s if found else self.last_s
        return found

    def search(self, step: int) -> list[Fault]:
        """Probe all pairs and return a fault for each slow link and each rank with slow links; all ranks call it."""
        now = self._probe()
        slow = slow_pairs(now.large, self.healthy.large)
        for _ in range(LOOKS - 1):
            if slow:
                again = self._probe(only=slow, repeats=AGAIN_REPEATS).large
                now = Probe(now.small, np.where(np.isfinite(again), again, now.large), now.seconds)
                still = slow_pairs(now.large, self.healthy.large)
                slow = [pair for pair in slow if pair in still]
        if not slow:
            self.healthy_step = step
            return []
        return [
            self._since(fault)
            for fault in named_by_matrix(slow, self.ranks, now.large, self.healthy.large, step)
        ]

    def rates(self) -> dict[Pair, LinkRate]:
        """Return the measured rate of the healthy link between every two ranks, the smaller first."""
        found = {}
        for a, first in enumerate(self.ranks):
            for b, second in list(enumerate(self.ranks))[a + 1 :]:
                latency_s = float(np.nanmax([self.healthy.small[a, b], self.healthy.small[b, a]]))
                large_s = float(np.nanmax([self.healthy.large[a, b], self.healthy.large[b, a]]))
                transfer_s = max(FLOOR_S, large_s - latency_s)
                found[first, second] = LinkRate(latency_s, LARGE_BYTES / transfer_s)
        return found

    def _probe(self, **how: object) -> Probe:
        return probe(self.rank, self.ranks, self.group, self.delay, **how)  # type: ignore[arg-type]

    def _since(self, fault: Fault) -> Fault:
        """Return a fault with the step from which on its ranks wait longer, or the first behind a healthy probe."""
        ends = [rank for rank in (fault.rank, fault.peer) if rank is not None]
        own = self.waits.joining(ends) if self.rank.place.rank in ends else {}
        everyone = [own] * len(self.ranks)
        dist.all_gather_object(everyone, own, group=self.group)
        step = longer_since(everyone, self.healthy_step)
        step = self.healthy_step + 1 if step is None else step
        return replace(fault, step=step, evidence=f"{fault.evidence}, since step {step}")
