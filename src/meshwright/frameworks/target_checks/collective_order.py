"""The order in which a target sends, group by group, against the Program's.

Groups run on streams of their own, so that order is held within a group, and sends and receives of a pair by
themselves. What the Program puts side by side may come in any order.
"""

from collections import Counter
from collections.abc import Sequence

from meshwright.frameworks.target_checks.comparison_result import (
    ClassComparison,
    Disagreement,
    ExplainedDifference,
)
from meshwright.frameworks.target_checks.difference_matching import CollectiveKey, collective_key, covers
from meshwright.frameworks.target_checks.known_differences import Difference
from meshwright.frameworks.target_checks.planned_collectives import ConcurrentCollectives, Members
from meshwright.frameworks.target_checks.recorded_step import IssuedCollective


def compare_order(
    moments: Sequence[ConcurrentCollectives],
    issued: Sequence[IssuedCollective],
    rows: Sequence[Difference],
    result: ClassComparison,
    equal: Counter[CollectiveKey],
) -> None:
    """Return the first place in each group where the target's traffic differs from the plan's.

    Held are sizes of which all are equal.
    """
    ours, theirs = (
        Counter(collective_key(s) for m in moments for s in m),
        Counter(map(collective_key, issued)),
    )
    held = {one for one, count in equal.items() if ours[one] == count == theirs[one]}
    for members in dict.fromkeys(one[1] for one in held):
        sent = next(s for moment in moments for s in moment if s.members == members)
        excuse = next((row for row in rows if row.effect == "order" and covers(row, sent)), None)
        for end in ("send", "receive", ""):
            kept = [
                [t for t in map(collective_key, m) if t in held and _on(t, members, end)] for m in moments
            ]
            done = [t for t in map(collective_key, issued) if t in held and _on(t, members, end)]
            found = _first_difference("·".join(sent.axes), [m for m in kept if m], done)
            if found and excuse:
                result.explained.append(
                    ExplainedDifference(excuse.name, found.plan, found.target, excuse.why)
                )
            elif found:
                result.disagreements.append(found)


def _on(one: CollectiveKey, members: Members, end: str) -> bool:
    """Return true if a token runs in this group, as this end of a message; no end: not as a message."""
    return one[1] == members and (one[0] if one[0] in ("send", "receive") else "") == end


def _first_difference(
    name: str, plan: Sequence[Sequence[CollectiveKey]], done: Sequence[CollectiveKey]
) -> Disagreement | None:
    at = 0
    for moment in plan:
        here = done[at : at + len(moment)]
        if Counter(here) != Counter(moment):
            where = f"order over {name}, after {at} of {len(done)}"
            return Disagreement(where, _in_order(moment), _in_order(here))
        at += len(moment)
    return None


def _in_order(tokens: Sequence[CollectiveKey]) -> str:
    shown = ", then ".join(f"{kind} of {size:,} bytes" for kind, _, size in tokens[:4])
    return shown + (", …" if len(tokens) > 4 else "")
