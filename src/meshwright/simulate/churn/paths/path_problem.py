"""The choice of a path for each of some micro-batches that are in flight together (SkipPipe, arXiv 2502.19913).

A path begins at the micro-batch's first node, whose stage is compulsory, and visits ``visits`` stages in all, at one
node each; then the loss follows where ``head_s`` is given, at the first node again, and the backward passes go back the
same way. Stages are visited in their order, but for ``swaps`` that visit the stage right before the furthest so far.

Conflicts: a stage is visited by more than ``most`` or fewer than ``least`` of the micro-batches (``least`` and ``most``
hold for stages that are not compulsory), more than ``memory`` of them pass a node, or two are on a node at once. The
objective is the makespan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations, product

Path = tuple[int, ...]
"""The nodes of the forward passes, in their order."""
Interval = tuple[float, float]
Forbidden = Mapping[tuple[int, str], Sequence[Interval]]
"""Times at which a pass may not begin, by node and kind: F, H (the loss) or B."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A pass on a node, in seconds from the start of the step."""

    node: int
    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TimedPath:
    """A path with the times of its passes."""

    path: Path
    visits: tuple[Visit, ...]

    @property
    def end_s(self) -> float:
        """The end of the last backward pass, in seconds."""
        return self.visits[-1].end_s


@dataclass(frozen=True, kw_only=True)
class PathProblem:
    """Nodes with their stages and seconds, and micro-batches with their first nodes and release times."""

    stage_of: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    message_s: tuple[tuple[float, ...], ...]
    starts: tuple[int, ...]
    visits: int
    compulsory: frozenset[int] = frozenset({0})
    least: int = 0
    most: int = 1_000_000
    memory: int = 3
    swaps: int = 0
    head_s: tuple[float, ...] | None = None
    releases: tuple[float, ...] = field(default=())

    @property
    def micro_batches(self) -> range:
        """The indices of the micro-batches."""
        return range(len(self.starts))

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """The stages in their order."""
        return tuple(sorted(set(self.stage_of)))

    @cached_property
    def optional(self) -> tuple[int, ...]:
        """The stages that may be left out."""
        return tuple(stage for stage in self.stages if stage not in self.compulsory)

    @cached_property
    def _paths(self) -> dict[int, list[TimedPath]]:
        found: dict[int, list[TimedPath]] = {}
        for micro_batch in self.micro_batches:
            paths = [self.timed(micro_batch, path) for path in self._paths_from(self.starts[micro_batch])]
            found[micro_batch] = sorted(paths, key=lambda timed: timed.end_s)
        return found

    def paths(self, micro_batch: int) -> list[TimedPath]:
        """Return every path of a micro-batch with its times where it meets nobody, the shortest first."""
        return self._paths[micro_batch]

    def stages_visited(self, path: Path) -> frozenset[int]:
        """Return the stages of a path."""
        return frozenset(self.stage_of[node] for node in path)

    def timed(self, micro_batch: int, path: Path, forbidden: Forbidden | None = None) -> TimedPath:
        """Return a path with each pass as early as it may begin: a later one never helps what follows."""
        now = self.releases[micro_batch] if self.releases else 0.0
        visits, before = [], path[0]
        for node, kind in self._passes(path):
            now += self.message_s[before][node] if before != node else 0.0
            seconds = self._seconds(node, kind)
            now = first_allowed(now, (forbidden or {}).get((node, kind), ()))
            visits.append(Visit(node, kind, now, now + seconds))
            now, before = now + seconds, node
        return TimedPath(path, tuple(visits))

    def _passes(self, path: Path) -> Iterator[tuple[int, str]]:
        yield from ((node, "F") for node in path)
        if self.head_s is not None:
            yield path[0], "H"
        yield from ((node, "B") for node in reversed(path))

    def _seconds(self, node: int, kind: str) -> float:
        if kind == "H":
            assert self.head_s is not None
            return self.head_s[node]
        return (self.forward_s if kind == "F" else self.backward_s)[node]

    def _paths_from(self, start: int) -> Iterator[Path]:
        first = self.stage_of[start]
        others = [stage for stage in self.stages if stage != first]
        for chosen in combinations(others, self.visits - 1):
            if not self.compulsory <= {first, *chosen}:
                continue
            for order in permutations(chosen) if self.swaps else (chosen,):
                if self._allowed((first, *order)):
                    yield from ((start, *nodes) for nodes in product(*map(self._nodes_of, order)))

    def _nodes_of(self, stage: int) -> list[int]:
        return [node for node, of in enumerate(self.stage_of) if of == stage]

    def _allowed(self, order: Sequence[int]) -> bool:
        """Return true if only so many stages come late, each right behind the next one."""
        furthest, late = order[0], 0
        for stage in order[1:]:
            if stage < furthest:
                late += 1
                if late > self.swaps or stage != furthest - 1:
                    return False
            furthest = max(furthest, stage)
        return True


def first_allowed(at_s: float, forbidden: Sequence[Interval]) -> float:
    """Return the first time from ``at_s`` that is in none of the half-open intervals."""
    moved = True
    while moved:
        moved = False
        for start, end in forbidden:
            if start <= at_s < end:
                at_s, moved = end, True
    return at_s


def makespan(timed: Sequence[TimedPath]) -> float:
    """Return when the last micro-batch has ended."""
    return max(path.end_s for path in timed)
