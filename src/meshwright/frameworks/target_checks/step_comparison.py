"""Hold what a target did against what the Program means, one class of ranks at a time.

Compared are the elements that a rank holds, the groups that it talks in, and its collectives: how many of each size
per kind and group, and their order. Order is held per group (groups run on streams of their own), among the sizes
whose counts agree, and what the Program puts side by side may come in any order. What ``known_differences.py``
explains is listed with its reason and both figures; what is left is a disagreement.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from meshwright.frameworks.target_checks.collective_order import compare_order
from meshwright.frameworks.target_checks.comparison_result import (
    ClassComparison,
    Disagreement,
    ExplainedDifference,
)
from meshwright.frameworks.target_checks.difference_matching import (
    CollectiveKey,
    UnmatchedCollectives,
    applies,
    collective_key,
    figures,
    in_target_units,
    match_differences,
)
from meshwright.frameworks.target_checks.known_differences import Difference, PlanKind
from meshwright.frameworks.target_checks.planned_collectives import (
    ConcurrentCollectives,
    Members,
    PlannedCollective,
    RankView,
)
from meshwright.frameworks.target_checks.recorded_step import IssuedCollective, RecordedStep

WHOLE_ROW_REASON = "parameters are cut by whole rows, the plan's by elements of a block"


def compare(seat: RankView, ran: RecordedStep, kind: PlanKind, rows: Sequence[Difference]) -> ClassComparison:
    """Everything about one class of ranks; ``rows`` are what the target does in its own way."""
    rows = [row for row in rows if applies(row, kind)]
    result = ClassComparison(ran.rank, seat.pipeline_rank, ran.seconds)
    _hold_place(seat, ran, result)
    _hold_elements(seat, ran, result)
    meant = _alive(seat.step())
    _hold_groups(seat, meant, ran, result)
    moments, result.explained[len(result.explained) :] = in_target_units(meant, seat, rows, kind.sharding)
    _hold_collectives(seat, moments, ran.issued, rows, result)
    return result


def _alive(moments: Iterable[ConcurrentCollectives]) -> list[ConcurrentCollectives]:
    """Without what a rank would send to itself, and without empty moments."""
    kept = (tuple(sent for sent in moment if len(sent.members) > 1 and sent.bytes) for moment in moments)
    return [moment for moment in kept if moment]


def _hold_place(seat: RankView, ran: RecordedStep, result: ClassComparison) -> None:
    for name, plan, target in (
        ("ranks", seat.program.parts.ranks, ran.ranks),
        ("rank", seat.rank, ran.rank),
    ):
        if plan != target:
            result.disagreements.append(Disagreement(name, f"{plan:,}", f"{target:,}"))


def _hold_elements(seat: RankView, ran: RecordedStep, result: ClassComparison) -> None:
    """Parameters as they rest, and one of the optimizer's moments."""
    held, at = seat.program.held_elements, seat.pipeline_rank
    for name, plan, target in (
        ("parameters", held(at, "parameter"), ran.parameters),
        ("optimizer", held(at, "optimizer"), ran.optimizer),
    ):
        result.counts.append({"quantity": name, "plan": plan, "target": target, "unit": "elements per rank"})
        shown = f"{plan:,} elements", f"{target:,} elements"
        if 0 < abs(plan - target) <= ran.rows:
            result.explained.append(ExplainedDifference(f"pieces of {name}", *shown, WHOLE_ROW_REASON))
        elif plan != target:
            result.disagreements.append(Disagreement(name, *shown))


def _hold_groups(
    seat: RankView, moments: Sequence[ConcurrentCollectives], ran: RecordedStep, result: ClassComparison
) -> None:
    """Every group of the plan is one that the target made, and it talks in no other than the plan's axes make."""
    made = set(ran.made) | {issued.members for issued in ran.issued}
    ours = {
        sent.members: sent.axes
        for moment in moments
        for sent in moment
        if sent.kind not in ("send", "receive")
    }
    for members, axes in ours.items():
        name = "·".join(axes)
        result.groups.append(
            {"axes": list(axes), "ranks": list(members[:16]), "size": len(members), "made": members in made}
        )
        if members not in made and axes != ("tied",):
            nearest = _same_size(members, made)
            result.disagreements.append(Disagreement(f"group {name}", _ranks(members), nearest))
    known = axis_groups(seat)
    for members in {i.members for i in ran.issued if i.kind not in ("send", "receive")} - set(known):
        result.disagreements.append(Disagreement("group of no axes of the plan", "none", _ranks(members)))


def _same_size(members: Members, made: set[Members]) -> str:
    alike = sorted(other for other in made if len(other) == len(members))
    return _ranks(alike[0]) if alike else f"no group of {len(members)}"


def _ranks(members: Members) -> str:
    shown = ", ".join(map(str, members[:8]))
    return f"ranks {shown}{', …' if len(members) > 8 else ''}"


def axis_groups(seat: RankView) -> dict[Members, tuple[str, ...]]:
    """Every group that some of the plan's axes make around this rank, with the fewest axes that make it."""
    found: dict[Members, tuple[str, ...]] = {}
    part = seat.program.parts.only
    for grid in (part.grid, part.expert_grid):
        axes = [axis for axis in grid.order if grid.sizes[axis] > 1]
        for chosen in sorted(_subsets(axes), key=len):
            found.setdefault(seat.members(chosen), chosen)
    return found


def _subsets(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for bits in range(1, 2 ** len(axes)):
        yield tuple(axis for i, axis in enumerate(axes) if bits >> i & 1)


def _hold_collectives(
    seat: RankView,
    moments: Sequence[ConcurrentCollectives],
    issued: Sequence[IssuedCollective],
    rows: Sequence[Difference],
    result: ClassComparison,
) -> None:
    labels: dict[CollectiveKey, list[PlannedCollective]] = defaultdict(list)
    for moment in moments:
        for sent in moment:
            labels[collective_key(sent)].append(sent)
    ours = Counter({one: len(named) for one, named in labels.items()})
    theirs = Counter(map(collective_key, issued))
    result.collectives = list(_figures(seat, labels, ours, theirs))
    sides = UnmatchedCollectives(ours, theirs, labels, seat.program.micro_batches)
    match_differences(sides, rows)
    result.explained += sides.explained
    result.disagreements += _left(seat, labels, sides)
    compare_order(moments, issued, rows, result, sides.equal)


def _name(
    seat: RankView, labels: dict[CollectiveKey, list[PlannedCollective]], kind: str, members: Members
) -> str:
    if kind in ("send", "receive"):
        (other,) = set(members) - {seat.rank}
        return f"{kind}, rank {other}"
    axes = next((n[0].axes for t, n in labels.items() if t[1] == members), None)
    axes = axes or axis_groups(seat).get(members) or ("other",)
    return f"{kind} over {'·'.join(axes)}"


def _figures(
    seat: RankView,
    labels: dict[CollectiveKey, list[PlannedCollective]],
    ours: Counter[CollectiveKey],
    theirs: Counter[CollectiveKey],
) -> Iterator[dict[str, object]]:
    """Count and bytes of both sides per kind and group."""
    for kind, members in dict.fromkeys((t[0], t[1]) for t in [*ours, *theirs]):
        row: dict[str, object] = {"collective": _name(seat, labels, kind, members), "size": len(members)}
        for side, tokens in (("plan", ours), ("target", theirs)):
            chosen = {t: n for t, n in tokens.items() if t[:2] == (kind, members)}
            row[f"{side}_count"] = sum(chosen.values())
            row[f"{side}_bytes"] = sum(n * t[2] for t, n in chosen.items())
        yield row


def _left(
    seat: RankView, labels: dict[CollectiveKey, list[PlannedCollective]], sides: UnmatchedCollectives
) -> Iterator[Disagreement]:
    """Return the differences that no row explains, per kind and group, with both sides' figures."""
    for kind, members in dict.fromkeys((t[0], t[1]) for t in [*sides.ours, *sides.theirs]):
        plan, target = (
            Counter({t: n for t, n in side.items() if t[:2] == (kind, members)})
            for side in (sides.ours, sides.theirs)
        )
        yield Disagreement(_name(seat, labels, kind, members), figures(plan), figures(target))
