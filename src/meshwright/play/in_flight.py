"""Count the passes in flight along a rank's list: waiting for B or I, waiting for W, or on the host.

F holds one more pass of its stage, B one less; I turns one that waits for its backward pass into one that waits for W.
S holds one more of a share of the vocabulary, T one less. What OFFLOAD copies away is on the host when the pass behind
it has ended, and what RELOAD brings is held from when it begins (``schedules/activation_offload.py``). The order alone
decides what is held when; what a pass holds in bytes, or in any other unit, is a matter of the reader.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple, TypeVar

from meshwright.schedules.action import PASS_KINDS, Action

OF_STAGES: Mapping[str, tuple[int, int]] = {"F": (1, 0), "B": (-1, 0), "I": (-1, 1), "W": (0, -1)}
"""The change by a pass of a stage: of what waits for B or I, and of what waits for W."""
CHANGES: Mapping[str, tuple[int, int]] = {**OF_STAGES, "S": (1, 0), "T": (-1, 0)}
"""Those of shares of a vocabulary too."""

Amount = TypeVar("Amount", int, float)


class Change(NamedTuple):
    """The change by the action at ``position`` in what waits for B or I, what waits for W, and what is on the host."""

    position: int
    stage: int
    waiting: int
    for_weights: int
    on_host: int


def changes_along(actions: Iterable[Action]) -> Iterator[Change]:
    """Yield the changes by each pass and copy in the order in which they happen."""
    leaving: list[int] = []
    for position, action in enumerate(actions):
        kind, stage = action.kind, action.stage
        if stage is None:
            continue
        if kind in PASS_KINDS:
            yield Change(position, stage, *CHANGES.get(kind, (0, 0)), 0)
            for other in leaving:
                yield Change(position, other, 0, 0, 1)
            leaving = []
        elif kind == "OFFLOAD":
            leaving.append(stage)
            yield Change(position, stage, 0, 0, 0)
        elif kind == "RELOAD":
            yield Change(position, stage, 0, 0, -1)


def held_change(kind: str, kept: Amount, left: Amount) -> Amount:
    """Return the change by a pass whose F keeps ``kept``, of which I leaves ``left`` for W."""
    waiting, for_weights = CHANGES.get(kind, (0, 0))
    return waiting * kept + for_weights * left


def host_changes(actions: Iterable[Action]) -> Iterator[tuple[int, int]]:
    """Yield the stage of each pass that comes to the host with OFFLOAD, with 1, or is needed again, with -1."""
    out = set[tuple[int, int | None]]()
    for action in actions:
        if action.stage is None:
            continue
        copied = action.stage, action.micro_batch
        if action.kind == "OFFLOAD":
            out.add(copied)
            yield action.stage, 1
        elif action.kind in ("B", "I") and copied in out:
            yield action.stage, -1


def most_in_flight(actions: Iterable[Action]) -> int:
    """Return the largest number of forward passes whose backward pass (B, or W of a split one) has not ended."""
    changes = (sum(OF_STAGES.get(action.kind, (0, 0))) for action in actions)
    return max(accumulate(changes, initial=0))
