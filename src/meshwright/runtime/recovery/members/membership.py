"""Decide who goes on in a run after members were lost or joined. Pure.

A *member* is a process that is or becomes a rank. A replica is complete with one member for each of its *positions*:
its ranks in order. Members of incomplete replicas complete one another, unless replicas are islands, each with states
of its own. The members with the most steps are the source of states; the others receive copies.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.program.program import Program

REPLICA = "dp_replicate"


@dataclass(frozen=True, slots=True)
class Place:
    """A replica's number, and the position of a rank in it."""

    replica: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A member that can go on. ``step`` is the number of steps of its states, None if they are not whole."""

    member: int
    place: Place
    step: int | None


@dataclass(frozen=True, slots=True)
class Source:
    """The states that all go on with: their step, and for each position the replica that has them."""

    step: int
    replicas: tuple[int, ...]


def places_of(program: Program) -> list[Place]:
    """Return the place of every rank of a Program."""
    grid, seen, found = program.parts[0].grid, dict[int, int](), list[Place]()
    for rank in range(program.parts.ranks):
        replica = grid.coordinates(rank)[REPLICA]
        position = seen[replica] = seen.get(replica, -1) + 1
        found.append(Place(replica, position))
    return found


def complete_replicas(
    candidates: Iterable[Candidate], size: int, *, islands: bool
) -> list[tuple[Candidate, ...]]:
    """Return complete replicas of ``size`` members in the order of their positions, by the replicas' numbers."""
    by_replica: dict[int, dict[int, Candidate]] = {}
    for one in candidates:
        by_replica.setdefault(one.place.replica, {})[one.place.position] = one
    whole = [number for number in sorted(by_replica) if len(by_replica[number]) == size]
    complete = [tuple(by_replica[number][position] for position in range(size)) for number in whole]
    if islands:
        return complete
    rest = [by_replica[number] for number in sorted(by_replica) if number not in whole]
    spare = [[members[position] for members in rest if position in members] for position in range(size)]
    return complete + list(zip(*spare, strict=False))


def source_of(replicas: Sequence[Sequence[Candidate]], *, islands: bool) -> Source | None:
    """Return the newest states that some members hold for every position; None if no step has all of them.

    An island is a source as a whole only.
    """
    steps = {one.step for members in replicas for one in members if one.step is not None}
    for step in sorted(steps, reverse=True):
        held = [[one.step == step for one in members] for members in replicas]
        alone = next((number for number, row in enumerate(held) if all(row)), None)
        if alone is not None:
            return Source(step, (alone,) * len(replicas[alone]))
        columns = [[row[position] for row in held] for position in range(len(held[0]))]
        if not islands and all(any(column) for column in columns):
            return Source(step, tuple(column.index(True) for column in columns))
    return None


def up_to_date(replicas: Sequence[Sequence[Candidate]], source: Source, *, islands: bool) -> set[int]:
    """Return the members that keep their own states; of an island all or none."""
    found: set[int] = set()
    for members in replicas:
        newest = [one.member for one in members if one.step == source.step]
        if not islands or len(newest) == len(members):
            found.update(newest)
    return found


def ranks_of(program: Program) -> Mapping[Place, int]:
    """Return the rank at every place of a Program."""
    return {place: rank for rank, place in enumerate(places_of(program))}
