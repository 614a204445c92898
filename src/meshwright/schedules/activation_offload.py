"""Activation offload between F and the backward pass: which passes go to host memory, and the times of return.

Of a pass that goes out OFFLOAD stands behind its F and RELOAD ahead of its B (or I). The copy out overlaps the one
pass that follows it in the rank's list; what was copied is free when that pass has ended, and the rank does not go on
before. The copy back begins ``ahead`` passes before the backward pass, and from there on it takes memory. So a pass
goes out whose rank runs at least ``ahead`` + 2 others between its two ends, during one of which it takes no memory:
those that are held for long, most of all on the first ranks (PipeOffload; Wan et al., arXiv 2503.01328). What comes
back at once stays, as on the last rank under 1F1B. There a rank holds at most ``ahead`` + 2 passes of what goes out,
whatever the number of ranks. A pure function of lists: any schedule, and lists that somebody wrote.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from meshwright.schedules.action import PASS_KINDS, Action, ActionLists, Kind

COPIES: tuple[Kind, ...] = ("OFFLOAD", "RELOAD")


@dataclass(frozen=True, slots=True)
class OffloadRule:
    """``share`` of each stage's layers, rounded up, have their activations out; ``ahead`` in passes of the rank."""

    share: float = 0.0
    ahead: int = 1

    def layers_out(self, layers: int) -> int:
        """Return the number of a stage's layers to offload: the first ones, whose backward pass comes last."""
        return ceil(round(self.share * layers, 9))


class OffloadedStages(NamedTuple):
    """Offloaded activations: those of ``stages``, back ``ahead`` passes before they are needed."""

    stages: frozenset[int]
    ahead: int


def with_offloads(lists: ActionLists, copied: OffloadedStages) -> list[list[Action]]:
    """Return lists of passes with copies in them."""
    return [_with_offloads(actions, *copied) for actions in lists]


def _with_offloads(actions: Sequence[Action], stages: frozenset[int], ahead: int) -> list[Action]:
    passes = [action for action in actions if action.kind in PASS_KINDS]
    began: dict[tuple[int | None, int | None], int] = {}
    out: dict[Action, Action] = {}
    back: dict[Action, list[Action]] = defaultdict(list)
    for turn, action in enumerate(passes):
        which = action.stage, action.micro_batch
        if action.kind == "F" and action.stage in stages:
            began[which] = turn
        elif action.kind in ("B", "I") and turn - began.get(which, turn) > ahead + 2:
            out[passes[began[which]]] = Action("OFFLOAD", *which)
            back[passes[turn - ahead]].append(Action("RELOAD", *which))
    result: list[Action] = []
    for action in actions:
        result += [*back.get(action, ()), action, *([out[action]] if action in out else [])]
    return result
