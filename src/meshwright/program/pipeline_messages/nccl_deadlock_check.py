"""Deadlock and order of point-to-point messages under NCCL's rules.

NCCL runs the operations of one communicator in the order in which each side enqueued them, and an operation
completes only when both sides have reached it. The checker plays the lists as a machine of such rendezvous: per
channel a queue of sends and a queue of receives; a message moves when it heads both. A rank blocks only on a
receive whose data it needs next; it posts receives in the channel's order.

``per_direction``: one communicator for each (sender, receiver). With one communicator per unordered pair, as a
plain NCCL pair has, even 1F1B blocks: the two directions then wait for each other.

Exchanges between all ranks (``all_rank_exchanges.py``) have communicators of their own, and are played with the
messages; so are the sums of steps that are validated afterwards.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from meshwright.errors import Problem
from meshwright.program.lowering.optimizer_post_validation import PostValidationSums
from meshwright.program.pipeline_messages.all_rank_exchanges import AllRankExchanges, check_order
from meshwright.schedules.action import MESSAGES, RECEIVES, SENDS, Action, ActionLists
from meshwright.schedules.dependencies import StageChains

_NEIGHBOUR: dict[str, int] = {"SEND_F": 1, "RECV_F": -1, "SEND_B": -1, "RECV_B": 1}
"""From the stage of an action to the stage at the other end of its message."""


class Message(NamedTuple):
    """One end of a message: F or B, the stage that produced it, the micro-batch."""

    kind: str
    stage: int
    micro_batch: int


def message_of(action: Action) -> Message:
    """Return the message that a SEND or RECV moves, named by its producing stage."""
    assert action.stage is not None
    assert action.micro_batch is not None
    step = _NEIGHBOUR[action.kind] if action.kind in RECEIVES else 0
    return Message(action.kind[-1], action.stage + step, action.micro_batch)


def check_messages(
    lists: ActionLists,
    placement: Sequence[int],
    *,
    per_direction: bool = True,
    ways: StageChains | None = None,
) -> list[Problem]:
    """Problems of the lists' messages: misplaced ones, sends and receives that do not pair up, or a deadlock.

    ``ways`` of a vocabulary that is spread: the exchanges of all ranks are played with the messages.
    """
    problems = _misplaced(lists, placement) or _unpaired(lists) or list(check_order(lists))
    if problems:
        return problems
    meetings = AllRankExchanges(placement, ways or StageChains(len(placement)))
    stuck = _stuck(lists, _communicators(lists, placement, per_direction), meetings)
    if not stuck:
        return []
    rule = "the ranks wait for each other's messages and none can go on"
    hint = "reorder the actions" if per_direction else "one communicator per direction"
    return [Problem("lists", " ".join(stuck), rule, hint)]


def posted_ahead(lists: ActionLists, placement: Sequence[int], ways: StageChains) -> int:
    """Return the fewest micro-batches that ranks must post a broadcast ahead of their lists, for all to end."""
    for ahead in range(1, 1 + max(map(len, lists))):
        queues = _communicators(lists, placement, per_direction=True)
        if not _stuck(lists, queues, AllRankExchanges(placement, ways, ahead)):
            return ahead
    raise AssertionError("the validator let a deadlock through")


def _stuck(lists: ActionLists, queues: "_Queues", meetings: AllRankExchanges) -> list[str]:
    """Play the lists; the actions at which ranks wait for ever."""
    positions, arrived, sums = [0] * len(lists), set[Message](), PostValidationSums()
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(lists):
            while positions[rank] < len(actions):
                action = actions[positions[rank]]
                if not _can_run(action, arrived):
                    break
                if not (meetings.can_run(action, rank) and sums.can_run(action, rank)):
                    break
                meetings.ran(action, rank)
                sums.ran(action, rank)
                positions[rank] += 1
                progress = True
        for ends in queues.values():
            while _transfer(ends, positions, arrived):
                progress = True
    return [str(a[p]) for a, p in zip(lists, positions, strict=True) if p < len(a)]


class _Post(NamedTuple):
    """One side of a transfer in a communicator's queue; ``position`` is where its list reaches it."""

    message: Message
    rank: int
    position: int
    sends: bool


_Queues = dict[object, dict[int, deque[_Post]]]
"""For each communicator the queues of its two ranks."""


def _communicators(lists: ActionLists, placement: Sequence[int], per_direction: bool) -> _Queues:
    """For each communicator the queues of its two ranks, in the order of the channel."""
    queues: _Queues = defaultdict(lambda: defaultdict(deque))
    for rank, actions in enumerate(lists):
        for position, action in enumerate(actions):
            if action.kind not in MESSAGES:
                continue
            message = message_of(action)
            ends = placement[message.stage], placement[message.stage + _NEIGHBOUR[f"SEND_{message.kind}"]]
            key: object = ends if per_direction else frozenset(ends)
            queues[key][rank].append(_Post(message, rank, position, action.kind in SENDS))
    for sides in queues.values():
        if per_direction:
            _post_in_channel_order(sides)
    return queues


def _post_in_channel_order(sides: dict[int, deque[_Post]]) -> None:
    """Receives are posted in the order of the sends, each no later than the first one that waits for it."""
    order = {post.message: i for i, post in enumerate(p for q in sides.values() for p in q if p.sends)}
    for rank, queue in sides.items():
        if queue and not queue[0].sends:
            posts = sorted(queue, key=lambda post: order[post.message])
            earliest = posts[-1].position
            moved = []
            for post in reversed(posts):
                earliest = min(earliest, post.position)
                moved.append(post._replace(position=earliest))
            sides[rank] = deque(reversed(moved))


def _transfer(sides: dict[int, deque[_Post]], positions: list[int], arrived: set[Message]) -> bool:
    """Move the message at the head of both queues, if both ranks have reached it."""
    if len(sides) < 2 or not all(sides.values()):
        return False
    heads = [queue[0] for queue in sides.values()]
    if heads[0].message != heads[1].message:
        return False
    if any(positions[h.rank] < h.position + (1 if h.sends else 0) for h in heads):
        return False
    for queue in sides.values():
        queue.popleft()
    arrived.add(heads[0].message)
    return True


def _can_run(action: Action, arrived: set[Message]) -> bool:
    """Return true if an action can run: a receive waits for its data; a send is enqueued."""
    return action.kind not in RECEIVES or message_of(action) in arrived


def _misplaced(lists: ActionLists, placement: Sequence[int]) -> list[Problem]:
    """Messages of stages that do not exist, stand on another rank, or have no neighbour on another rank."""
    problems = []
    for rank, actions in enumerate(lists):
        for action in actions:
            if action.kind in MESSAGES and not _belongs(action, rank, placement):
                rule = "there is no such message on this rank"
                problems.append(Problem(f"lists.{rank}", str(action), rule, "take it out"))
    return problems


def _belongs(action: Action, rank: int, placement: Sequence[int]) -> bool:
    stage, step = action.stage, _NEIGHBOUR[action.kind]
    if stage is None or action.micro_batch is None:
        return False
    inside = 0 <= stage < len(placement) and 0 <= stage + step < len(placement)
    return inside and placement[stage] == rank and placement[stage + step] != rank


def _unpaired(lists: ActionLists) -> list[Problem]:
    """Messages that are not sent once and received once."""
    everything = [action for actions in lists for action in actions]
    sends = Counter(message_of(a) for a in everything if a.kind in SENDS)
    receives = Counter(message_of(a) for a in everything if a.kind in RECEIVES)
    problems = []
    for message in sorted(sends.keys() | receives.keys()):
        sent, received = sends[message], receives[message]
        if (sent, received) != (1, 1):
            text = f"{message.stage}{message.kind}{message.micro_batch}"
            rule = f"its result is sent {sent} times and received {received} times, not once each"
            problems.append(Problem("lists", text, rule, "one send, one receive"))
    return problems
