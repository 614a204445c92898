"""Exchanges between all pipeline ranks: dependencies, and a check that all ranks meet in one order.

Each kind of exchange has a communicator of its own, and each rank enters its exchanges in the order of its list, which
must be the same on all ranks. A sum is entered with a rank's part of it and waited for by the pass that needs it, so
that entering never blocks. What is broadcast is waited for where the other ranks' lists have it; their side is posted
ahead, as that of messages is. A library's broadcast goes from rank to rank: it arrives when the ranks on its way have
posted their side, which they do so many micro-batches ahead as ``rendezvous.posted_ahead`` finds to suffice.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from meshwright.errors import Problem
from meshwright.schedules.action import BROADCASTS, EXCHANGES, SUMS, Action, ActionLists, Kind
from meshwright.schedules.dependencies import StageChains, exchange_before

Exchange = tuple[Kind, int]
"""An exchange and the micro-batch that it is for."""


def exchange_of(action: Action) -> Exchange:
    """Return the exchange that an action takes part in."""
    assert action.micro_batch is not None
    return action.kind, action.micro_batch


def awaited_sum(action: Action, ways: StageChains) -> Exchange | None:
    """Return the sum over all ranks that a pass waits for; broadcasts have an action that waits."""
    kind = exchange_before(action, ways)
    assert action.micro_batch is not None or kind is None
    return (kind, action.micro_batch or 0) if kind in SUMS else None


def sender(kind: Kind, placement: Sequence[int]) -> int | None:
    """Return the rank that broadcasts; None for a sum."""
    return None if kind in SUMS else root(kind, placement)


def root(kind: Kind, placement: Sequence[int]) -> int:
    """Return the rank that broadcasts, or that needs a sum of activations."""
    return placement[0 if kind in ("REDUCE_E", "BROADCAST_B") else -1]


class AllRankExchanges:
    """The progress of all exchanges while lists are played.

    ``ahead``: how many micro-batches of a broadcast a rank posts ahead of its list; None for all of them.
    """

    def __init__(self, placement: Sequence[int], ways: StageChains, ahead: int | None = None) -> None:
        self._placement, self._ways, self._ahead = placement, ways, ahead
        self._entered: dict[Exchange, set[int]] = defaultdict(set)
        self._passed: Counter[tuple[Kind, int]] = Counter()
        self._numbers: dict[Exchange, int] = {}

    def can_run(self, action: Action, rank: int) -> bool:
        """Return true if everything that an action waits for of all ranks is there."""
        if action.kind in EXCHANGES:
            root = sender(action.kind, self._placement)
            return root in (None, rank) or self._arrives(exchange_of(action))
        kind = exchange_before(action, self._ways)
        if kind is None:
            return True
        assert action.micro_batch is not None
        exchange = kind, action.micro_batch
        if kind in BROADCASTS:  # its action has waited, but for the sender's own
            return self._ahead is None or self._arrives(exchange)
        return len(self._entered[exchange]) == self._ways.ranks

    def ran(self, action: Action, rank: int) -> None:
        """Record that an action has run."""
        if action.kind in EXCHANGES:
            self._entered[exchange_of(action)].add(rank)
            self._numbers[exchange_of(action)] = self._passed[action.kind, rank]
            self._passed[action.kind, rank] += 1

    def _arrives(self, exchange: Exchange) -> bool:
        """Return true if a broadcast is sent and all ranks have posted their side, which frees its sender."""
        kind, others = exchange[0], range(self._ways.ranks)
        if sender(kind, self._placement) not in self._entered[exchange]:
            return False
        ahead, number = self._ahead, self._numbers[exchange]
        return ahead is None or all(self._passed[kind, other] + ahead > number for other in others)


def check_order(lists: ActionLists) -> Iterator[Problem]:
    """All ranks take the micro-batches of each kind of exchange in the order of the first rank."""
    for kind in EXCHANGES:
        orders = [[a.micro_batch for a in actions if a.kind == kind] for actions in lists]
        for rank, order in enumerate(orders):
            if order != orders[0]:
                at = next(i for i, (a, b) in enumerate(zip(order, orders[0], strict=True)) if a != b)
                rule = f"rank 0 has micro-batch {orders[0][at]} in this place, and a communicator keeps its order"
                yield Problem(f"lists.{rank}", f"{kind}{order[at]}", rule, "one order on all ranks")
