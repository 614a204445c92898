"""The order in which a target sends, group by group, against the Program's.

Groups run on streams of their own, so that order is held within a group, and sends and receives of a pair by
themselves. What the Program puts side by side may come in any order.
"""

from collections import Counter
from collections.abc import Sequence

from meshwright.export.dry.differences import Difference
from meshwright.export.dry.explain import Token, covers, token
from meshwright.export.dry.meant import Members, Moment
from meshwright.export.dry.ran import Issued
from meshwright.export.dry.result import Compared, Disagreement, Explained


def hold_order(
    moments: Sequence[Moment],
    issued: Sequence[Issued],
    rows: Sequence[Difference],
    result: Compared,
    equal: Counter[Token],
) -> None:
    """The first place in each group where the target sends something else than the plan.

    Held are sizes of which all are equal.
    """
    ours, theirs = Counter(token(s) for m in moments for s in m), Counter(map(token, issued))
    held = {one for one, count in equal.items() if ours[one] == count == theirs[one]}
    for members in dict.fromkeys(one[1] for one in held):
        sent = next(s for moment in moments for s in moment if s.members == members)
        excuse = next((row for row in rows if row.effect == "order" and covers(row, sent)), None)
        for end in ("send", "receive", ""):
            kept = [[t for t in map(token, m) if t in held and _on(t, members, end)] for m in moments]
            done = [t for t in map(token, issued) if t in held and _on(t, members, end)]
            found = _first_difference("·".join(sent.axes), [m for m in kept if m], done)
            if found and excuse:
                result.explained.append(Explained(excuse.name, found.plan, found.target, excuse.why))
            elif found:
                result.disagreements.append(found)


def _on(one: Token, members: Members, end: str) -> bool:
    """Whether a token runs in this group, as this end of a message; no end: not as a message."""
    return one[1] == members and (one[0] if one[0] in ("send", "receive") else "") == end


def _first_difference(
    name: str, plan: Sequence[Sequence[Token]], done: Sequence[Token]
) -> Disagreement | None:
    at = 0
    for moment in plan:
        here = done[at : at + len(moment)]
        if Counter(here) != Counter(moment):
            where = f"order over {name}, after {at} of {len(done)}"
            return Disagreement(where, _in_order(moment), _in_order(here))
        at += len(moment)
    return None


def _in_order(tokens: Sequence[Token]) -> str:
    shown = ", then ".join(f"{kind} of {size:,} bytes" for kind, _, size in tokens[:4])
    return shown + (", …" if len(tokens) > 4 else "")
