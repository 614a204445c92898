"""Deadlock and order of point-to-point messages under NCCL's rules.

NCCL runs the operations of one communicator in the order in which each side enqueued them, and an operation
completes only when both sides have reached it. The checker plays the lists as a machine of such rendezvous: per
channel a queue of sends and a queue of receives; a message moves when it heads both. A rank blocks only on a
receive whose data it needs next; it posts receives in the channel's order.

``per_direction``: one communicator for each (sender, receiver). With one communicator per unordered pair, as a
plain NCCL pair has, even 1F1B blocks: the two directions then wait for each other.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from meshwright.errors import Problem
from meshwright.schedule.action import Action, ActionLists

SENDS = ("SEND_F", "SEND_B")
RECEIVES = ("RECV_F", "RECV_B")


class Message(NamedTuple):
    """One end of a message: F or B, the stage that produced it, the micro-batch."""

    kind: str
    stage: int
    micro_batch: int


def message_of(action: Action) -> Message:
    """The message that a SEND or RECV moves, named by its producing stage."""
    assert action.stage is not None
    assert action.micro_batch is not None
    step = {"SEND_F": 0, "SEND_B": 0, "RECV_F": -1, "RECV_B": 1}[action.kind]
    return Message(action.kind[-1], action.stage + step, action.micro_batch)


def check_messages(
    lists: ActionLists, placement: Sequence[int], *, per_direction: bool = True
) -> list[Problem]:
    """Problems of the lists' messages: sends and receives that do not pair up, or a deadlock."""
    unpaired = _unpaired(lists)
    if unpaired:
        return unpaired
    queues = _communicators(lists, placement, per_direction)
    positions, arrived = [0] * len(lists), set[Message]()
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(lists):
            while positions[rank] < len(actions) and _can_run(actions[positions[rank]], arrived):
                positions[rank] += 1
                progress = True
        for ends in queues.values():
            progress |= _transfer(ends, lists, positions, arrived)
    stuck = [str(a[p]) for a, p in zip(lists, positions, strict=True) if p < len(a)]
    if not stuck:
        return []
    rule = "the ranks wait for each other's messages and none can go on"
    return [
        Problem(
            "pipeline.schedule", " ".join(stuck), rule, "reorder the actions, or one channel per direction"
        )
    ]


class _Post(NamedTuple):
    """One side of a transfer in a communicator's queue; ``position`` is where its list reaches it."""

    message: Message
    rank: int
    position: int
    sends: bool


def _communicators(
    lists: ActionLists, placement: Sequence[int], per_direction: bool
) -> dict[object, dict[int, deque[_Post]]]:
    """For each communicator the queues of its two ranks, in the order of the channel."""
    queues: dict[object, dict[int, deque[_Post]]] = defaultdict(lambda: defaultdict(deque))
    for rank, actions in enumerate(lists):
        for position, action in enumerate(actions):
            if action.kind not in SENDS + RECEIVES:
                continue
            message = message_of(action)
            step = 1 if message.kind == "F" else -1
            ends = placement[message.stage], placement[message.stage + step]
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
            earliest = len(posts) and posts[-1].position
            moved = []
            for post in reversed(posts):
                earliest = min(earliest, post.position)
                moved.append(post._replace(position=earliest))
            sides[rank] = deque(reversed(moved))


def _transfer(
    sides: dict[int, deque[_Post]], lists: ActionLists, positions: list[int], arrived: set[Message]
) -> bool:
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
    """A receive waits for its data; a send is enqueued and never waits."""
    return action.kind not in RECEIVES or message_of(action) in arrived


def _unpaired(lists: ActionLists) -> list[Problem]:
    sends = [message_of(a) for actions in lists for a in actions if a.kind in SENDS]
    receives = [message_of(a) for actions in lists for a in actions if a.kind in RECEIVES]
    problems = [
        Problem("pipeline.schedule", str(m), "is received but never sent", "add the send")
        for m in sorted(set(receives) - set(sends))
    ]
    problems += [
        Problem("pipeline.schedule", str(m), "is sent but never received", "add the receive")
        for m in sorted(set(sends) - set(receives))
    ]
    for name, messages in (("sent", sends), ("received", receives)):
        twice = (
            sorted({m for m in messages if messages.count(m) > 1})
            if len(set(messages)) < len(messages)
            else []
        )
        problems += [Problem("pipeline.schedule", str(m), f"is {name} twice", "remove one") for m in twice]
    return problems
