"""Arrivals of replicas in a step: which of them count, the same on all ranks.

``SeededArrivals`` follow from a seed, for proofs: late replicas compute everything and are left out. On real processes
the ranks agree (``arrival_agreement.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from meshwright.program.program import Program, sequences_of_step
from meshwright.program.synchronisation.replica_arrivals import (
    LateReplicas,
    arrival_weights,
    late_replicas,
    replica_labels,
)
from meshwright.runtime.synchronisation.draw_key import seeded
from meshwright.runtime.synchronisation.participation import Participation

CPU = torch.device("cpu")


class Arrivals(Protocol):
    """The source of arrivals."""

    def begin(self, step: int) -> None:
        """Begin a step."""

    def stops(self) -> bool:
        """Return true if this rank's replica is too late; asked before every pass, alike by all ranks of the pass."""

    def settle(self, step: int) -> tuple[int, ...]:
        """Say that this rank has made its passes, and return the replicas that count, in order."""


@dataclass(frozen=True)
class SeededArrivals:
    """Arrivals that follow from a seed and the step."""

    late: LateReplicas
    seed: int = 0

    def begin(self, step: int) -> None:
        """Do nothing."""

    def stops(self) -> bool:
        """Return false: all passes are made."""
        return False

    def settle(self, step: int) -> tuple[int, ...]:
        """Return the first replicas of a random order; of a dynamic quorum their number is random too."""
        late, draw = self.late, seeded(CPU, "arrivals", self.seed, step)
        order = torch.randperm(late.replicas, generator=draw).tolist()
        needed = late.needed
        if needed is None:
            needed = int(torch.randint(late.least, late.replicas + 1, (), generator=draw))
        return tuple(sorted(order[:needed]))


@dataclass
class StepParticipation:
    """The replicas that count in the current step of a rank: all, in plans that wait for all.

    ``not_seen`` are the sequences of the step that do not count, ``total_not_seen`` those of all steps so far.
    """

    program: Program
    place: tuple[int, int]
    participation: Participation
    arrivals: Arrivals | None = None
    labels: Sequence[Sequence[int]] = ()
    settled: bool = True
    not_seen: int | None = None
    total_not_seen: int | None = None

    def __post_init__(self) -> None:
        self.late = late_replicas(self.program)
        if self.late is not None:
            self.total_not_seen = 0

    def begin_step(self, step: int, labels: torch.Tensor | None) -> None:
        """Begin a step with labels by (dp_replicate, dp_shard)."""
        if self.late is None:
            return
        assert labels is not None, "a plan with late replicas counts labels by replica"
        self.labels, self.settled = labels.tolist(), False
        if self.arrivals is None:
            self.arrivals = SeededArrivals(self.late)
        self.arrivals.begin(step)

    def stops(self) -> bool:
        """Return true if this rank's replica is late and makes no more passes of this step."""
        return not self.settled and self.arrivals is not None and self.arrivals.stops()

    def settle(self, step: int) -> None:
        """Find out who counts, once a step and before gradients cross replicas."""
        if self.settled or self.late is None:
            return
        assert self.arrivals is not None
        arrived = self.arrivals.settle(step)
        labels = replica_labels(self.program, self.late.said.axis, self.labels, self.place)
        self.participation.take(arrival_weights(self.late, labels, arrived))
        absent = 0 if self.late.code is not None else self.late.replicas - len(arrived)
        self.not_seen = absent * sequences_of_step(self.program) // self.late.replicas
        self.total_not_seen = (self.total_not_seen or 0) + self.not_seen
        self.settled = True

    @property
    def own_weight(self) -> float:
        """The weight of this rank's gradient and loss."""
        if self.late is None or not self.participation.weights:
            return 1.0
        return self.participation.weights[self.place[0 if self.late.said.axis == "dp_replicate" else 1]]
