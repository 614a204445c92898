"""The input of a schedule generator: the pipeline's shape, the times of its stages, and the knobs of the plan.

Memory is counted in the unit that schedules are compared in: the forward pass of one micro-batch over a whole rank
adds 2 (one of V chunks 2/V), I takes away a half of that and W the rest; where the times say what part W waits for
(``StageTimes.kept``), that part instead of the half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshwright.schedules.stage_times import StageTimes

PASS_MEMORY = 2.0
"""What the forward pass of a micro-batch over a whole rank holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """A plan's choices for a schedule besides ranks, micro-batches and chunks; None: the schedule's default.

    ``memory_limit``: the most that a rank may hold. ``unit``: how many micro-batches go together. ``in_flight``: the
    most passes (micro-batch × chunk) that the first rank holds.
    """

    memory_limit: float | None = None
    unit: int | None = None
    in_flight: int | None = None


USUAL = Knobs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """P ranks, M micro-batches, V chunks a rank; stage s is on rank ``placement[s]`` and takes ``times``."""

    ranks: int
    micro_batches: int
    placement: tuple[int, ...]
    times: StageTimes
    knobs: Knobs = USUAL

    @property
    def stages(self) -> int:
        """K = P·V."""
        return len(self.placement)

    @property
    def chunks(self) -> int:
        """V, the stages of a rank."""
        return self.stages // self.ranks

    @property
    def unit(self) -> int:
        """Micro-batches per unit; all of them by default."""
        return self.knobs.unit or self.micro_batches

    @property
    def memory_limit(self) -> float:
        """The limit, or what 1F1B holds: P micro-batches."""
        limit = self.knobs.memory_limit
        return PASS_MEMORY * self.ranks if limit is None else limit


def looped_placement(ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage when stages go round and round: 0 1 2 3 0 1 2 3."""
    return tuple(stage % ranks for stage in range(ranks * chunks))


def returns_to_first(placement: Sequence[int], chains: int) -> bool:
    """Return true if the last of three or more pipeline ranks sends results to the first one, in any chain."""
    last, length = max(placement), len(placement) // chains
    ways = (placement[begin : begin + length] for begin in range(0, len(placement), length))
    return last > 1 and any((last, 0) in pairwise(way) for way in ways)


def v_placement(ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage when every second chunk goes back: 0 1 2 3 3 2 1 0."""
    there, back = tuple(range(ranks)), tuple(reversed(range(ranks)))
    return tuple(rank for chunk in range(chunks) for rank in (back if chunk % 2 else there))
