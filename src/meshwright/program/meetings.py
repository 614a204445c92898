"""Exchanges between all pipeline ranks: who waits for whom, and whether all ranks meet in one order.

Each kind of exchange has a communicator of its own, and each rank enters its exchanges in the order of its list, which
must be the same on all ranks. A sum is entered with a rank's part of it and waited for by the pass that needs it, so
that entering never blocks. What is broadcast is waited for where the other ranks' lists have it; their side is posted
ahead, as that of messages is.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from meshwright.errors import Problem
from meshwright.schedule.action import EXCHANGES, SUMS, Action, ActionLists, Kind
from meshwright.schedule.dependencies import Ways, exchange_before

Exchange = tuple[Kind, int]
"""An exchange and the micro-batch that it is for."""


def exchange_of(action: Action) -> Exchange:
    """The exchange that an action takes part in."""
    assert action.micro_batch is not None
    return action.kind, action.micro_batch


def awaited(action: Action, ways: Ways) -> Exchange | None:
    """The sum over all ranks that a pass waits for; what is broadcast has an action that waits."""
    kind = exchange_before(action, ways)
    assert action.micro_batch is not None or kind is None
    return (kind, action.micro_batch or 0) if kind in SUMS else None


def sender(kind: Kind, placement: Sequence[int]) -> int | None:
    """The rank that broadcasts; None for a sum."""
    return placement[_SENDER[kind]] if kind in _SENDER else None


_SENDER: dict[Kind, int] = {"BROADCAST_F": -1, "BROADCAST_B": 0}
"""The stage whose rank broadcasts."""


class Meetings:
    """How far all exchanges are while lists are played."""

    def __init__(self, placement: Sequence[int], ways: Ways) -> None:
        self._placement, self._ways = placement, ways
        self._entered: dict[Exchange, set[int]] = defaultdict(set)

    def can_run(self, action: Action, rank: int) -> bool:
        """Whether what an action waits for of all ranks is there."""
        if action.kind in EXCHANGES:
            root = sender(action.kind, self._placement)
            return root in (None, rank) or root in self._entered[exchange_of(action)]
        exchange = awaited(action, self._ways)
        return exchange is None or len(self._entered[exchange]) == self._ways.ranks

    def ran(self, action: Action, rank: int) -> None:
        """An action has run."""
        if action.kind in EXCHANGES:
            self._entered[exchange_of(action)].add(rank)


def check_order(lists: ActionLists) -> Iterator[Problem]:
    """All ranks take the micro-batches of each kind of exchange in the order of the first rank."""
    for kind in EXCHANGES:
        orders = [[a.micro_batch for a in actions if a.kind == kind] for actions in lists]
        for rank, order in enumerate(orders):
            if order != orders[0]:
                at = next(i for i, (a, b) in enumerate(zip(order, orders[0], strict=True)) if a != b)
                rule = f"rank 0 has micro-batch {orders[0][at]} in this place, and a communicator keeps its order"
                yield Problem(f"lists.{rank}", f"{kind}{order[at]}", rule, "one order on all ranks")
