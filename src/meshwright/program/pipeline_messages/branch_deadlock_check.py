"""Messages between ranks whose stages form branches, as input of ``nccl_deadlock_check.py``.

What a pass makes is sent to another rank once, right after the pass, however many stages need it there; it is received
before the first pass that needs it. Each such crossing is written as a boundary of its own between two stages that
nothing else has: 2n on the rank that sends, 2n + 1 on the one that receives.
"""

from collections import defaultdict
from collections.abc import Sequence

from meshwright.errors import Problem
from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.action import Action, ActionLists
from meshwright.schedules.dependencies import Key, StageChains, dependency_key, sources


def check_branch_messages(lists: ActionLists, placement: Sequence[int], ways: StageChains) -> list[Problem]:
    """Check for deadlocks of messages, with one communicator for each direction between two ranks."""
    crossings = _Crossings(lists, placement, ways)
    with_messages = [[step for action in actions for step in crossings.around(action)] for actions in lists]
    return check_messages(with_messages, crossings.ends)


class _Crossings:
    """Sends by the pass that makes what is sent, receives by the pass that needs it first, and the ranks of both."""

    def __init__(self, lists: ActionLists, placement: Sequence[int], ways: StageChains) -> None:
        self.ends: list[int] = []
        self._sends: dict[Key, list[int]] = defaultdict(list)
        self._receives: dict[Action, list[int]] = defaultdict(list)
        received = set[tuple[Key, int]]()
        for rank, actions in enumerate(lists):
            for action in actions:
                for key in sources(action, ways):
                    home = placement[key[1]]
                    if home != rank and (key, rank) not in received:
                        received.add((key, rank))
                        self._sends[key].append(len(self.ends))
                        self._receives[action].append(len(self.ends) + 1)
                        self.ends += [home, rank]

    def around(self, action: Action) -> list[Action]:
        """Return a pass with its receives before it and its sends after it."""
        m = action.micro_batch
        comes = [Action("RECV_F", end, m) for end in self._receives.get(action, ())]
        return [
            *comes,
            action,
            *(Action("SEND_F", end, m) for end in self._sends.get(dependency_key(action), ())),
        ]
