"""Parse the JSON line that a dry-run script prints of its step. Raises MeasurementError."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import MeasurementError
from meshwright.frameworks.target_checks.planned_collectives import Members


@dataclass(frozen=True, slots=True)
class IssuedCollective:
    """One collective that the target issued: its kind, the members of its group, its logical bytes."""

    kind: str
    members: Members
    bytes: int


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One rank's step. ``parameters`` and ``optimizer`` are elements of each; ``rows`` what cutting by rows may add."""

    rank: int
    ranks: int
    parameters: int
    optimizer: int
    rows: int
    made: tuple[Members, ...]
    issued: tuple[IssuedCollective, ...]
    seconds: float


def read_recorded_step(line: Mapping[str, Any]) -> RecordedStep:
    """Read the line of one rank, without barriers and sends to itself. Raises MeasurementError."""
    try:
        groups = [tuple(sorted(map(int, members))) for members in line["groups"]]
        issued = [
            IssuedCollective(str(kind), groups[group], int(size)) for kind, group, size in line["collectives"]
        ]
        return RecordedStep(
            rank=int(line["rank"]),
            ranks=int(line["ranks"]),
            parameters=int(line["parameters"]),
            optimizer=int(line["optimizer"]),
            rows=int(line["rows"]),
            made=tuple(tuple(sorted(map(int, members))) for members in line["made"]),
            issued=tuple(one for one in issued if len(one.members) > 1 and one.kind != "barrier"),
            seconds=float(line["seconds"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MeasurementError(f"the target's step is told in another form: {error!r}") from error
