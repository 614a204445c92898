"""Measurements of collectives, and the tables of nccl-tests and rccl-tests that they come from."""

from dataclasses import dataclass, field
from math import log

COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "alltoallv": "all-to-all-v",
    "sendrecv": "send-receive",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
}
"""Our names of the tests, by theirs without separators."""

ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
"""Bytes of the element types that a table may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One collective of one size. ``bytes`` is the size of nccl-tests: a rank's data when the result is complete.

    ``wrong``: elements with wrong results, None if they were not checked. ``nodes`` and ``processes`` are None
    if unknown.
    """

    collective: str
    ranks: int
    nodes: int | None
    processes: int | None
    bytes: int
    seconds: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    wrong: int | None
    in_place: bool
    dtype: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table, for one place: time in µs, bandwidths in GB/s; None or empty if missing."""

    size: int
    count: int | None
    dtype: str
    redop: str
    root: int | None
    in_place: bool
    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


@dataclass(frozen=True, slots=True)
class Member:
    """A rank as a table lists it."""

    rank: int
    host: str
    process: str
    device: str


@dataclass(slots=True)
class Table:
    """One run of one test. ``sizes`` is the number of sizes in its sweep, ``complete`` whether its end was seen."""

    where: str
    name: str = ""
    members: list[Member] = field(default_factory=list)
    sizes: int | None = None
    ranks: int | None = None
    processes: int | None = None
    rows: list[Row] = field(default_factory=list)
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOverrides:
    """The user's facts about all tables of a file; they win over anything that is read."""

    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def collective_name(test: str) -> str:
    """Return our name of a test, from ``all_reduce_perf``, ``AllReduce`` or a path; empty if it is none."""
    plain = test.replace("\\", "/").rsplit("/", 1)[-1].lower()
    for end in (".exe", "_mpi", "_perf"):
        plain = plain.removesuffix(end)
    return COLLECTIVES.get(plain.replace("_", ""), "")


def sweep_length(smallest: int, largest: int, step: int, *, is_factor: bool) -> int | None:
    """Return the number of sizes in a test's sweep; None if its settings make no sweep."""
    if not 0 < smallest <= largest or step < 1 + is_factor:
        return None
    if is_factor:
        return int(log(largest / smallest) / log(step) + 1e-9) + 1
    return (largest - smallest) // step + 1
