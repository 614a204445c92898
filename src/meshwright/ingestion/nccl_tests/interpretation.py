"""Interpret a table of nccl-tests: the number of ranks, the collective, and whether the figures are credible.

Saved output often lacks its head, but the figures imply most of it (doc/PERFORMANCE.md and the functions
GetCollByteCount, GetBw and RunTest of NVIDIA/nccl-tests a0b82b2). ``count`` is the share of one rank in some
collectives and all of the message in others, bus bandwidth is algorithm bandwidth times a factor of the collective and
of the number of ranks, some name a root or a reduction, and some are not checked in place. If figures contradict the
text around them, the figures win.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.ingestion.nccl_tests.table import ELEMENT_BYTES, Measurement, Row, Table, TableOverrides

GB, MICRO = 1e9, 1e-6
MIN_RELIABLE_GB_S = 1.0
"""Bandwidths below this are printed with too few digits to be useful."""
AGREEMENT = 0.05


@dataclass(frozen=True, slots=True)
class CollectiveTraits:
    """Traits of a collective in a table: bus factor ``bus``·(n−1)/n, or 1 if ``bus`` is 0."""

    shares: bool
    bus: int
    reduces: bool
    rooted: bool = False
    proved_in_place: bool = True

    def bus_factor(self, ranks: int) -> float:
        """Return bus bandwidth over algorithm bandwidth."""
        return self.bus * (ranks - 1) / ranks if self.bus else 1.0


CHARACTERS: Mapping[str, CollectiveTraits] = {
    "all-reduce": CollectiveTraits(shares=False, bus=2, reduces=True),
    "all-gather": CollectiveTraits(shares=True, bus=1, reduces=False),
    "reduce-scatter": CollectiveTraits(shares=True, bus=1, reduces=True),
    "all-to-all": CollectiveTraits(shares=True, bus=1, reduces=False, proved_in_place=False),
    "send-receive": CollectiveTraits(shares=False, bus=0, reduces=True, proved_in_place=False),
    "broadcast": CollectiveTraits(shares=False, bus=0, reduces=False, rooted=True),
    "reduce": CollectiveTraits(shares=False, bus=0, reduces=True, rooted=True),
}
"""Traits by collective; other tests are known by name only. Send-receive prints a reduction that it does not do."""


def measurements(table: Table, overrides: TableOverrides, problems: list[Problem]) -> Iterator[Measurement]:
    """Yield the measurements of a table; append its problems to ``problems``."""
    rows = [row for row in table.rows if _is_credible(row, table.where, problems)]
    _note_gaps(table, problems)
    if not rows or _is_without_mpi(table, problems):
        return
    ranks = overrides.ranks or _ranks(table, rows, problems)
    collective = overrides.collective or (_collective(table, rows, ranks, problems) if ranks else "")
    if not collective:
        missing = "which collective it measured" if ranks else "how many ranks took part"
        problems.append(Problem(table.where, table.name, f"does not say {missing}", "say it beside the file"))
        return
    listed = len(table.members) == ranks
    hosts = len({member.host for member in table.members})
    processes = len({(member.host, member.process) for member in table.members})
    for row in rows:
        yield Measurement(
            collective=collective,
            ranks=ranks,
            nodes=overrides.nodes or (hosts if listed else None),
            processes=processes if listed else table.processes,
            bytes=row.size,
            seconds=row.time_us * MICRO,
            algbw_bytes_per_s=row.algbw * GB,
            busbw_bytes_per_s=row.busbw * GB,
            wrong=row.wrong,
            in_place=row.in_place,
            dtype=row.dtype,
            device=table.members[0].device if table.members else "",
        )


def _is_credible(row: Row, where: str, problems: list[Problem]) -> bool:
    """Return whether a row moved anything, in a time that agrees with its bandwidth."""
    if row.wrong:
        rule = f"{row.wrong} elements of a message of {row.size} bytes came out wrong"
        problems.append(Problem(where, row.wrong, rule, "a fault of hardware or software", "warning"))
    if row.size <= 0 or row.time_us <= 0:
        return False  # a message with less than one element for each rank is empty
    bandwidth = row.size / (row.time_us * MICRO) / GB
    if row.algbw < MIN_RELIABLE_GB_S or abs(bandwidth - row.algbw) <= AGREEMENT * row.algbw:
        return True
    rule = (
        f"{row.size} bytes in {row.time_us:g} µs are {bandwidth:.3g} GB/s, and the table says {row.algbw:g}"
    )
    problems.append(Problem(where, row.algbw, rule, "left out", "warning"))
    return False


def _note_gaps(table: Table, problems: list[Problem]) -> None:
    """Warn about missing sizes; several sizes may be rounded to the same one."""
    places = {row.in_place for row in table.rows}
    measured = min((sum(row.in_place is place for row in table.rows) for place in places), default=0)
    if table.sizes is not None and measured < table.sizes:
        rule = f"has {measured} of {table.sizes} sizes"
        rule += " and an end: some were left out" if table.complete else " and no end: the output was cut off"
        problems.append(Problem(table.where, measured, rule, "the whole output of the test", "warning"))


def _is_without_mpi(table: Table, problems: list[Problem]) -> bool:
    """Return whether several processes each tested themselves and printed into one output."""
    if len({member.rank for member in table.members}) == len(table.members):
        return False
    rule = "lists a rank twice: processes that were built without MPI each tested their own devices"
    problems.append(Problem(table.where, len(table.members), rule, "build nccl-tests with MPI=1"))
    return True


def _ranks(table: Table, rows: Sequence[Row], problems: list[Problem]) -> int:
    """Return the ranks implied by the figures, else those listed; 0 if neither tells."""
    listed = table.ranks or len(table.members)
    inferred = _ranks_of_counts(rows) or _ranks_of_bandwidths(rows, listed)
    if inferred and listed and inferred != listed:
        rule = f"lists {listed} ranks, and its figures are those of {inferred}"
        problems.append(Problem(table.where, listed, rule, f"the figures count: {inferred}", "warning"))
    return inferred or listed


def _ranks_of_counts(rows: Sequence[Row]) -> int:
    """Return how often ``count`` elements fit in a message, if more than once and the same everywhere; else 0."""
    shares = {_shares(row) for row in rows}
    return max(shares) if len(shares) == 1 and max(shares) > 1 else 0


def _shares(row: Row) -> int:
    """Return how often ``count`` elements fit in the message; 0 if not a whole number of times."""
    counted = (row.count or 0) * ELEMENT_BYTES.get(row.dtype, 0)
    return row.size // counted if counted and row.size % counted == 0 else 0


def _ranks_of_bandwidths(rows: Sequence[Row], listed: int) -> int:
    """Return n from the bus factor 2(n−1)/n if the digits allow only one and it is not ``listed``; else 0."""
    row = _telling(rows)
    if row.algbw < MIN_RELIABLE_GB_S:
        return 0
    factor, digits = row.busbw / row.algbw, 0.015 / row.algbw
    if not 1 + digits < factor < 2 - 2 * digits or (listed and abs(factor - 2 + 2 / listed) <= digits):
        return 0
    is_one_choice = 2 / (2 - factor - digits) - 2 / (2 - factor + digits) < 1
    return round(2 / (2 - factor)) if is_one_choice else 0


def _collective(table: Table, rows: Sequence[Row], ranks: int, problems: list[Problem]) -> str:
    """Return the collective by name, or by its figures if they allow only one; empty if neither tells."""
    possible = [name for name, character in CHARACTERS.items() if _may_be(character, _telling(rows), ranks)]
    if table.name and (table.name in possible or table.name not in CHARACTERS):
        return table.name
    likely = [name for name in possible if _looks_like(CHARACTERS[name], rows)]
    if len(likely) != 1:
        return ""
    if table.name:
        rule = f"is said to be {table.name}, and its figures are those of {likely[0]}"
        problems.append(Problem(table.where, table.name, rule, f"read as {likely[0]}", "warning"))
    return likely[0]


def _may_be(character: CollectiveTraits, row: Row, ranks: int) -> bool:
    """Return whether count and bandwidths of a row can be those of a collective."""
    counts = not _shares(row) or ranks == 1 or (_shares(row) > 1) == character.shares
    is_telling = row.algbw >= MIN_RELIABLE_GB_S
    return counts and (
        not is_telling or abs(row.busbw / row.algbw - character.bus_factor(ranks)) <= AGREEMENT
    )


def _looks_like(character: CollectiveTraits, rows: Sequence[Row]) -> bool:
    """Return whether root, reduction and checks match a collective; releases differ in them."""
    row = rows[0]
    return (
        (row.root is None or (row.root >= 0) == character.rooted)
        and (not row.redop or (row.redop != "none") == character.reduces)
        and _proved_in_place(rows) in (None, character.proved_in_place)
    )


def _proved_in_place(rows: Sequence[Row]) -> bool | None:
    """Return whether in-place results were checked; None if no results were checked or none are in place."""
    inside = [row.wrong is not None for row in rows if row.in_place]
    outside = [row.wrong is not None for row in rows if not row.in_place]
    return None if not inside or not (any(inside) or any(outside)) else any(inside)


def _telling(rows: Sequence[Row]) -> Row:
    """Return the row with the most digits."""
    return max(rows, key=lambda row: row.algbw)
