"""Apply what a target does in its own way: take from both sides what a row of ``known_differences.py`` explains."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from meshwright.frameworks.target_checks.comparison_result import ExplainedDifference
from meshwright.frameworks.target_checks.known_differences import Difference, PlanKind
from meshwright.frameworks.target_checks.planned_collectives import (
    ConcurrentCollectives,
    Members,
    PlannedCollective,
    RankView,
)
from meshwright.frameworks.target_checks.recorded_step import IssuedCollective

CollectiveKey = tuple[str, Members, int]
"""Kind, group and bytes: what both sides count."""
MOST_SIZES = 14
"""Sets of more sizes than these are not searched."""


@dataclass
class UnmatchedCollectives:
    """Unmatched tokens of both sides, and ``equal`` ones; ``labels`` name the purpose of the plan's."""

    ours: Counter[CollectiveKey]
    theirs: Counter[CollectiveKey]
    labels: dict[CollectiveKey, list[PlannedCollective]]
    micro_batches: int
    explained: list[ExplainedDifference] = field(default_factory=list)
    equal: Counter[CollectiveKey] = field(default_factory=Counter)


def collective_key(one: PlannedCollective | IssuedCollective) -> CollectiveKey:
    """Return the key under which a collective is counted."""
    return one.kind, one.members, one.bytes


def applies(row: Difference, kind: PlanKind) -> bool:
    """Return true if a row applies to plans of this kind."""
    sharding = not row.shardings or kind.sharding in row.shardings
    recompute = not row.recomputes or kind.recompute in row.recomputes
    return sharding and recompute and row.pipeline in (None, kind.pipeline)


def covers(row: Difference, sent: PlannedCollective) -> bool:
    """Return true if a row applies to this collective of the plan."""
    axes = not row.axes or bool(set(row.axes) & set(sent.axes))
    return sent.kind in row.kind and axes and (not row.what or sent.what.split(" ")[0] in row.what)


def in_target_units(
    moments: Sequence[ConcurrentCollectives], seat: RankView, rows: Sequence[Difference], sharding: str
) -> tuple[list[ConcurrentCollectives], list[ExplainedDifference]]:
    """Return the plan's moments in the target's units, and the rows that changed them."""
    explained = []
    for row in rows:
        if row.effect != "units":
            continue
        changed = [tuple(p for s in m for p in _units(row, s, seat, sharding)) for m in moments]
        if changed != list(moments):
            plan, target = (f"{sum(map(len, side)):,} collectives" for side in (moments, changed))
            explained.append(ExplainedDifference(row.name, plan, target, row.why))
        moments = changed
    return list(moments), explained


def _units(
    row: Difference, sent: PlannedCollective, seat: RankView, sharding: str
) -> tuple[PlannedCollective, ...]:
    return seat.units(sent, sharding) if covers(row, sent) else (sent,)


def match_differences(sides: UnmatchedCollectives, rows: Sequence[Difference]) -> None:
    """Take away what is equal and what rows explain; what is left are disagreements.

    What is cut anew is looked for before and after: pieces of one thing may be as large as all of another, and two
    things of one size are told apart only when the equal one is gone.
    """
    for row in rows:
        if row.effect in BEFORE:
            BEFORE[row.effect](sides, row)
    sides.equal = sides.ours & sides.theirs
    sides.ours, sides.theirs = sides.ours - sides.equal, sides.theirs - sides.equal
    for row in rows:
        if row.effect in AFTER:
            AFTER[row.effect](sides, row)


def _again(sides: UnmatchedCollectives, row: Difference) -> None:
    """Whole ones, and pieces that add up to whole ones."""
    named = Counter(collective_key(s) for sents in sides.labels.values() for s in sents if covers(row, s))
    for one, count in named.items():
        most = _most(sides, row, count)
        whole = min(most, sides.theirs[one])
        pieces = Counter({t: n for t, n in sides.theirs.items() if t[:2] == one[:2] and t[2] < one[2]})
        tried = (_fitting(pieces, times * one[2]) for times in range(most - whole, 0, -1))
        _take(sides, row, Counter(), next(filter(None, tried), Counter()))
        _take(sides, row, Counter(), +Counter({one: whole}))


def _most(sides: UnmatchedCollectives, row: Difference, planned: int) -> int:
    """Return the number of times a row explains one size: ``times`` per micro-batch, or the plan's count."""
    return row.times * sides.micro_batches if row.times else planned


def _recut(sides: UnmatchedCollectives, row: Difference) -> None:
    for members in {t[1] for t in sides.ours}:
        ours = _ours(sides, row, members)
        theirs = Counter(
            {t: n for t, n in sides.theirs.items() if t[0] in (row.done or row.kind) and t[1] == members}
        )
        found = _fitting(theirs, row.factor * _bytes(ours))
        if ours != ours & theirs and found:
            _take(sides, row, ours, found)


def _fitting(tokens: Counter[CollectiveKey], wanted: float) -> Counter[CollectiveKey]:
    """Sizes, each with all of its count, that have the wanted bytes together: all of them, or some of a few."""
    if _bytes(tokens) == wanted or len(tokens) > MOST_SIZES:
        return tokens if _bytes(tokens) == wanted else Counter()
    reach: dict[int, Counter[CollectiveKey]] = {0: Counter()}
    for one, count in tokens.items():
        for size, chosen in list(reach.items()):
            reach.setdefault(size + count * one[2], chosen + Counter({one: count}))
    return reach.get(round(wanted), Counter()) if wanted else Counter()


def _absent(sides: UnmatchedCollectives, row: Difference) -> None:
    for members in {t[1] for t in sides.ours}:
        _take(sides, row, _ours(sides, row, members), Counter())


def _kept(sides: UnmatchedCollectives, row: Difference) -> None:
    for members in {t[1] for t in sides.ours}:
        fewer = _ours(sides, row, members)
        _take(sides, row, Counter({t: min(n, _most(sides, row, n)) for t, n in fewer.items()}), Counter())


def _between(sides: UnmatchedCollectives, row: Difference) -> None:
    for members in {t[1] for t in sides.ours}:
        ours = _ours(sides, row, members)
        theirs = Counter({t: n for t, n in sides.theirs.items() if t[0] in row.kind and t[1] == members})
        least = _bytes(ours) - row.most_bytes * sides.micro_batches
        if least <= _bytes(theirs) <= row.factor * _bytes(ours):
            _take(sides, row, ours, theirs)


def _small(sides: UnmatchedCollectives, row: Difference) -> None:
    few = {t: n for t, n in sides.theirs.items() if t[0] in row.kind and t[2] <= row.most_bytes}
    _take(sides, row, Counter(), Counter(few))


BEFORE = {"absent": _absent, "recut": _recut}
AFTER = {"again": _again, "kept": _kept, "recut": _recut, "between": _between, "small": _small}
"""How effects take what they explain, before and after what is equal."""


def _ours(sides: UnmatchedCollectives, row: Difference, members: Members) -> Counter[CollectiveKey]:
    """Return the plan's unmatched traffic in one group that a row covers; equal sizes may have several purposes."""
    found: Counter[CollectiveKey] = Counter()
    for one, left in sides.ours.items():
        if one[1] == members:
            found[one] = min(left, sum(covers(row, sent) for sent in sides.labels[one]))
    return +found


def _take(
    sides: UnmatchedCollectives, row: Difference, ours: Counter[CollectiveKey], theirs: Counter[CollectiveKey]
) -> None:
    if not ours and not theirs:
        return
    sides.ours, sides.theirs = sides.ours - ours, sides.theirs - theirs
    sides.explained.append(ExplainedDifference(row.name, figures(ours), figures(theirs), row.why))


def _bytes(tokens: Counter[CollectiveKey]) -> int:
    return sum(n * t[2] for t, n in tokens.items())


def figures(tokens: Counter[CollectiveKey]) -> str:
    """Count and bytes of tokens, each size by itself."""
    return ", ".join(_spoken(tokens)) or "nothing"


def _spoken(tokens: Counter[CollectiveKey]) -> Iterator[str]:
    shown = sorted(tokens.items(), key=lambda item: (item[0][0], -item[0][2]))
    for (kind, members, size), count in shown[:6]:
        yield f"{count} {kind} of {size:,} bytes over {len(members)} ranks"
    if len(shown) > 6:
        yield f"and {len(shown) - 6} other sizes"
