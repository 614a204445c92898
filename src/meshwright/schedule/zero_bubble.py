"""Zero-bubble schedules under a memory limit, found by playing them (Qi et al., arXiv 2401.10241, section 3.1).

The backward pass is split: I, the gradient of the input, goes on to the previous stage at once; W, the gradient of
the weights, fills gaps. Lists are made by playing the pipeline: a rank that is free runs what can begin first, I
before F where both can, W while it would wait for longer than a part of W, and W where F would pass the memory limit.
A rank may let F wait for an I that is about to arrive. How long it waits for either is tried in several ways
(``PATIENCE``) and the lists with the shortest makespan are taken. With equal times and no messages they reach the
hand-made ZB-H1 and ZB-H2: a makespan of 3M + P − 1 (one more for an odd P) and of 3M.

``zb_h1`` may hold as much as 1F1B's first rank (P micro-batches) on every rank, ``zb_h2`` twice as much.
"""

from dataclasses import dataclass, field

from meshwright.schedule.action import Action, Kind
from meshwright.schedule.generators import looped_placement, with_equal_times
from meshwright.schedule.times import StageTimes

PATIENCE = ((0.99, 0.2), (0.99, 0.0), (0.5, 0.2), (0.5, 0.99), (0.0, 0.99), (0.0, 0.0))
"""Parts of W that a rank waits for an I or F, and parts of F that F waits for an I."""
NOTHING: "Choice" = (float("inf"), 0, "W", -1)

Choice = tuple[float, int, Kind, int]
"""When an action can begin, its rank among equals, its kind and its stage."""


def zb_h1_lists(micro_batches: int, placement: tuple[int, ...], times: StageTimes) -> list[list[Action]]:
    """Lists that hold no more than P micro-batches' activations on any rank."""
    return automatic_lists(micro_batches, placement, times, 1.0)


def zb_h2_lists(micro_batches: int, placement: tuple[int, ...], times: StageTimes) -> list[list[Action]]:
    """Lists that hold no more than 2P micro-batches' activations on any rank."""
    return automatic_lists(micro_batches, placement, times, 2.0)


zb_h1 = with_equal_times(zb_h1_lists, looped_placement)
zb_h2 = with_equal_times(zb_h2_lists, looped_placement)


def automatic_lists(
    micro_batches: int, placement: tuple[int, ...], times: StageTimes, memory_limit: float
) -> list[list[Action]]:
    """The shortest of the lists that are tried; ``memory_limit`` in P micro-batches of a whole rank."""
    tried = [
        _play(micro_batches, placement, times, memory_limit, wait, patience) for wait, patience in PATIENCE
    ]
    return min(tried, key=lambda player: player.makespan).lists


def _play(
    micro_batches: int,
    placement: tuple[int, ...],
    times: StageTimes,
    memory_limit: float,
    wait: float,
    patience: float,
) -> "_Player":
    ranks = max(placement) + 1
    limit = max(1.0, memory_limit * ranks * (len(placement) // ranks))
    player = _Player(micro_batches, placement, times, limit, wait, patience)
    player.run()
    return player


@dataclass
class _Player:
    """The state of a pipeline that is being scheduled; memory in forward passes of one stage."""

    micro_batches: int
    placement: tuple[int, ...]
    times: StageTimes
    limit: float
    wait: float
    patience: float
    lists: list[list[Action]] = field(default_factory=list)

    def __post_init__(self) -> None:
        ranks, stages = max(self.placement) + 1, len(self.placement)
        self.lists = [[] for _ in range(ranks)]
        self.mine = [[s for s in range(stages) if self.placement[s] == rank] for rank in range(ranks)]
        self.clock, self.held, self.begun = [0.0] * ranks, [0.0] * ranks, [-1.0] * ranks
        self.done: dict[Kind, list[list[float]]] = {kind: [[] for _ in range(stages)] for kind in ("F", "I")}
        self.weights = [0] * stages

    @property
    def makespan(self) -> float:
        return max(end - start for start, end in zip(self.begun, self.clock, strict=True))

    def run(self) -> None:
        choices = [self._choose(rank) for rank in range(len(self.lists))]
        for _ in range(3 * self.micro_batches * len(self.placement)):
            rank = min(range(len(choices)), key=choices.__getitem__)
            _, _, kind, stage = choices[rank]
            for changed in {rank, *self._run(rank, kind, stage)}:
                choices[changed] = self._choose(changed)

    def _choose(self, rank: int) -> Choice:
        """What a rank does next, as far as it knows now."""
        now = self.clock[rank]
        best: Choice = NOTHING
        for stage in self.mine[rank]:
            ready = self._input_ready(stage)
            if ready is not None:
                ahead = self.patience * self.times.forward[stage]
                best = min(best, (max(ready, now) - ahead, 0, "I", -stage))
            ready = self._forward_ready(stage)
            if ready is not None and self.held[rank] + 1 <= self.limit + 1e-9:
                best = min(best, (max(ready, now), 1, "F", -stage))
        start, order, kind, stage = best
        if kind == "I":
            start = max(now, start + self.patience * self.times.forward[-stage])
        for pending in self.mine[rank]:
            late = start > now + self.wait * self.times.weight[pending]
            if self.weights[pending] < len(self.done["I"][pending]) and late:
                return (now, 2, "W", pending)
        return (start, order, kind, -stage)

    def _forward_ready(self, stage: int) -> float | None:
        number = len(self.done["F"][stage])
        if number == self.micro_batches:
            return None
        return 0.0 if stage == 0 else self._arrival("F", stage - 1, stage, number)

    def _input_ready(self, stage: int) -> float | None:
        number = len(self.done["I"][stage])
        if number == len(self.done["F"][stage]):
            return None
        own = self.done["F"][stage][number]
        if stage == len(self.placement) - 1:
            return own
        arrived = self._arrival("I", stage + 1, stage, number)
        return None if arrived is None else max(own, arrived)

    def _arrival(self, kind: Kind, source: int, target: int, number: int) -> float | None:
        if number >= len(self.done[kind][source]):
            return None
        crosses = self.placement[source] != self.placement[target]
        return self.done[kind][source][number] + (self.times.message if crosses else 0.0)

    def _run(self, rank: int, kind: Kind, stage: int) -> list[int]:
        """Append an action; returns the ranks that may have something new to do."""
        start = self._start(rank, kind, stage)
        if self.begun[rank] < 0:
            self.begun[rank] = start
        number = self.weights[stage] if kind == "W" else len(self.done[kind][stage])
        self.lists[rank].append(Action(kind, stage, number))
        duration = {"F": self.times.forward, "I": self.times.input, "W": self.times.weight}[kind][stage]
        self.clock[rank] = start + duration
        if kind == "W":
            self.weights[stage] += 1
            self.held[rank] -= self.times.kept
            return []
        self.done[kind][stage].append(self.clock[rank])
        self.held[rank] += 1 if kind == "F" else self.times.kept - 1
        neighbour = stage + 1 if kind == "F" else stage - 1
        return [self.placement[neighbour]] if 0 <= neighbour < len(self.placement) else []

    def _start(self, rank: int, kind: Kind, stage: int) -> float:
        ready = (
            None if kind == "W" else self._forward_ready(stage) if kind == "F" else self._input_ready(stage)
        )
        return self.clock[rank] if ready is None else max(self.clock[rank], ready)
