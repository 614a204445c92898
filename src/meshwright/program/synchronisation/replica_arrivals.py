"""Arrivals of replicas in a step: the number that it waits for, and the weights of their gradients. Pure.

With replica i's labels lᵢ of L, ranks compute the gradients of (lᵢ/L)·mean loss, which add up to the batch's. Of a
quorum A the gradient is Σ over A of these, times L/Σ lᵢ over A: the mean over the labels of those that arrived.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from meshwright.plans.synchronisation.combination import DYNAMIC, Flag
from meshwright.plans.synchronisation.gradient_code import GradientCode, gradient_code
from meshwright.plans.synchronisation.synchronisation import Synchronisation, combined_entry
from meshwright.program.program import Program
from meshwright.program.synchronisation.exchange_weights import DATA_AXES


@dataclass(frozen=True, slots=True)
class LateReplicas:
    """An entry of ``synchronise`` without whose late replicas a step goes on, and the replicas of its axis."""

    entry: int
    said: Synchronisation
    replicas: int

    @property
    def code(self) -> GradientCode | None:
        """The code of coded gradients."""
        coded = self.said.coded
        return None if coded is None else gradient_code(self.replicas, int(coded.tolerate or 0))

    @property
    def needed(self) -> int | None:
        """The replicas that a step waits for; None: it follows from arrivals."""
        if self.code is not None:
            return self.code.needed
        return None if self.said.quorum == DYNAMIC else int(self.said.quorum or self.replicas)

    @property
    def least(self) -> int:
        """The fewest replicas whose gradients the rule can combine."""
        options = self.said.combination_options
        if isinstance(options, Flag):
            return int(options.rank)
        wrong = int(options) if isinstance(options, int | float) else 0
        return {"trimmed_mean": 2 * wrong + 1, "krum": 2 * wrong + 3}.get(self.said.combination, 1)


def late_replicas(program: Program) -> LateReplicas | None:
    """Return the entry without whose late replicas steps go on; None if all wait for all."""
    entry = combined_entry(program.synchronise)
    if entry is None or not program.synchronise[entry].lacks_late_replicas:
        return None
    said = program.synchronise[entry]
    return LateReplicas(entry, said, program.group_size((said.axis,)))


def replica_labels(
    program: Program, axis: str, labels: Sequence[Sequence[int]], own: tuple[int, int]
) -> list[int]:
    """Return the labels of each replica of an axis; ``labels`` are by (dp_replicate, dp_shard), ``own`` is a place.

    Of another axis all ranks count, or those of the own island.
    """
    at = DATA_AXES.index(axis)
    lines = labels if at == 0 else list(zip(*labels, strict=True))
    apart = DATA_AXES[1 - at] in program.loose
    return [line[own[1 - at]] if apart else sum(line) for line in lines]


def arrival_weights(late: LateReplicas, labels: Sequence[int], arrived: Collection[int]) -> list[float]:
    """Return the weight of each replica's gradient and loss; it is 0 of late replicas."""
    if late.code is not None:
        return late.code.decode(arrived)
    counted = sum(labels[replica] for replica in arrived)
    weight = sum(labels) / counted if counted else 1.0
    return [weight if replica in arrived else 0.0 for replica in range(late.replicas)]
