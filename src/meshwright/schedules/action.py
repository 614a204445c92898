"""Actions of a pipeline rank, one after the other, and their text form.

``2F0`` is the forward pass of stage 2 for micro-batch 0. B is a whole backward pass; I (gradient of the input)
and W (gradient of the weights) are its two halves. S and T are the passes of a vocabulary that is spread over the
pipeline's ranks (``vocabulary/``), E and D those of its embedding; those of rank r, and the exchanges between all ranks
around them, are written with the stage K + r, which is behind the K stages.
Actions that belong to no micro-batch leave the last number out (``1REDUCE``), those that belong to no stage the first
one too (``STEP``). A list is written with spaces between actions; ``parse_actions(format_actions(a)) == a``. ``SCOPE``
says which numbers a kind has.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from meshwright.errors import InputError, Problem, nearest

Kind = Literal[
    "F",  # forward
    "B",  # backward, both halves
    "I",  # backward, gradient of the input
    "W",  # backward, gradient of the weights
    "S",  # a rank's share of the logits, with its part of the softmax
    "T",  # a rank's share of the gradients behind the softmax
    "E",  # a rank's rows of the embedding, looked up
    "D",  # gradients of a rank's rows of the embedding
    "SEND_F",  # output of F to the next stage
    "RECV_F",  # input of F from the previous stage
    "SEND_B",  # gradient of the input to the previous stage
    "RECV_B",  # gradient of the output from the next stage
    "REDUCE_E",  # what all ranks looked up, summed at the first stage
    "BROADCAST_F",  # output of the last stage to all ranks
    "REDUCE_S",  # what the softmax needs of all ranks
    "REDUCE_T",  # gradient of the last stage's output, summed there
    "BROADCAST_B",  # gradient of what was looked up to all ranks
    "GATHER",  # sharded parameters of a stage
    "FREE",  # gathered parameters of a stage
    "REDUCE",  # gradients of a stage over the data-parallel ranks
    "REDUCE_MIRRORED",  # gradients of a stage over the pipeline ranks that have its layers too
    "REDUCE_TIED",  # gradients of a table that two stages share
    "NORM",  # gradient norm: over all ranks, or over those of a stage where steps are validated afterwards
    "SEND_NORM",  # sums over this rank and those before it to the next one
    "RECV_NORM",  # sums over all ranks before this one
    "PERTURB",  # parameters to the next point at which the loss is computed
    "STEP",  # optimizer
    "SYNC_BEGIN",  # due exchanges of an entry of synchronise, whose number stands in the place of a stage's
    "SYNC_END",  # results of exchanges that are due are applied
    "SEND_TOTAL",  # sums over all ranks, of the step before, to the previous rank
    "RECV_TOTAL",  # sums over all ranks, of the step before, from the next rank
    "OFFLOAD",  # activations of a micro-batch to host memory
    "RELOAD",
    "VALIDATE",  # checks of the optimizer step after the fact
]
KINDS: tuple[Kind, ...] = get_args(Kind)
COMPUTE_KINDS: tuple[Kind, ...] = ("F", "B", "I", "W")
"""Passes of stages."""
VOCABULARY_KINDS: tuple[Kind, ...] = ("E", "S", "T", "D")
"""Passes of a spread vocabulary."""
PASS_KINDS: tuple[Kind, ...] = (*COMPUTE_KINDS, *VOCABULARY_KINDS)
"""All passes."""
MAKE_GRADIENTS: tuple[Kind, ...] = ("B", "W", "T", "D")
"""Passes that make gradients of weights."""
SUMS: tuple[Kind, ...] = ("REDUCE_E", "REDUCE_S", "REDUCE_T")
BROADCASTS: tuple[Kind, ...] = ("BROADCAST_F", "BROADCAST_B")
EXCHANGES: tuple[Kind, ...] = (*SUMS, *BROADCASTS)
"""What all pipeline ranks exchange around the passes of a spread vocabulary: sums of all ranks, or one rank's."""
SENDS: tuple[Kind, ...] = ("SEND_F", "SEND_B")
RECEIVES: tuple[Kind, ...] = ("RECV_F", "RECV_B")
MESSAGES: tuple[Kind, ...] = (*SENDS, *RECEIVES)
"""What goes from the rank of a stage to the rank of the next or the previous one."""
SUM_SENDS: tuple[Kind, ...] = ("SEND_NORM", "SEND_TOTAL")
SUM_RECEIVES: tuple[Kind, ...] = ("RECV_NORM", "RECV_TOTAL")
SUM_MESSAGES: tuple[Kind, ...] = (*SUM_SENDS, *SUM_RECEIVES)
"""Messages between neighbouring pipeline ranks where an optimizer step is validated after it is taken."""
SYNCHRONISATIONS: tuple[Kind, ...] = ("SYNC_BEGIN", "SYNC_END")
"""Exchanges between islands behind the optimizer's step."""

Scope = Literal["pass", "stage", "rank"]
SCOPE: dict[Kind, Scope] = {
    **dict.fromkeys(KINDS, "pass"),
    **dict.fromkeys(("GATHER", "FREE", "REDUCE", "REDUCE_MIRRORED"), "stage"),
    **dict.fromkeys(("REDUCE_TIED", "NORM", "PERTURB", "STEP", "VALIDATE"), "rank"),
    **dict.fromkeys(SUM_MESSAGES, "rank"),
    **dict.fromkeys(SYNCHRONISATIONS, "stage"),
}
"""What a kind belongs to: a stage and a micro-batch, a stage, or a whole rank."""
SHAPES: dict[Scope, str] = {
    "pass": "write stage, kind, micro-batch: 2{kind}0",
    "stage": "write stage and kind: 2{kind}",
    "rank": "write the kind alone: {kind}",
}

_TEXT = re.compile(r"([0-9]{1,9})?([A-Z_]+)([0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Action:
    """One action. ``stage`` and ``micro_batch`` are None where they do not apply."""

    kind: Kind
    stage: int | None = None
    micro_batch: int | None = None

    def __str__(self) -> str:
        stage = "" if self.stage is None else self.stage
        micro_batch = "" if self.micro_batch is None else self.micro_batch
        return f"{stage}{self.kind}{micro_batch}"


ActionLists = Sequence[Sequence[Action]]
"""One list of actions per pipeline rank."""


def format_actions(actions: Iterable[Action]) -> str:
    """One rank's list as text."""
    return " ".join(str(action) for action in actions)


def parse_actions(text: str) -> list[Action]:
    """Read one rank's list. Raises ``InputError`` with every word that is no action."""
    actions: list[Action] = []
    problems: list[Problem] = []
    for word in text.split():
        action = _parse(word)
        if isinstance(action, Problem):
            problems.append(action)
        else:
            actions.append(action)
    if problems:
        raise InputError(problems)
    return actions


def _parse(word: str) -> Action | Problem:
    match = _TEXT.fullmatch(word)
    kind = next((k for k in KINDS if match and k == match[2]), None)
    if match is None or kind is None:
        near = nearest(match[2], KINDS) if match else SHAPES["pass"].format(kind="F")
        return Problem("action", word, "not an action", near)
    stage, micro_batch = (None if number is None else int(number) for number in (match[1], match[3]))
    scope: Scope = "rank" if stage is None else "stage" if micro_batch is None else "pass"
    if scope != SCOPE[kind] or (stage is None and micro_batch is not None):
        rule = {"pass": "a stage and a micro-batch", "stage": "a stage only", "rank": "neither number"}
        hint = SHAPES[SCOPE[kind]].format(kind=kind)
        return Problem("action", word, f"{kind} has {rule[SCOPE[kind]]}", hint)
    return Action(kind, stage, micro_batch)
