"""Find the peak of a stage's memory during its backward pass, beyond the activations that it kept.

Kept activations are at their most when the forward pass ends. From there on blocks free what they kept, from the last
to the first, while others are gathered, recomputed and reduced. At a moment a stage holds, beyond all that it kept,

    working + buffers - freed

The loss: nothing is freed, and the head alone is gathered. The backward pass of block i, behind block i+1 and ahead of
block i-1: what blocks behind it kept is freed (of the head that has begun, the logits); the block's recomputed tensors
(``working_bytes``), parameters of blocks i and i-1, own gradients of i and the message of i+1 are there. The end of
block i: what it kept and its parameters are free too; its gradients are in their own buffers and in the message. A tied
table stays gathered until the embedding's backward pass ends, and from the head's on so do its gradients.
Ignored: gradients of activations, and messages of data parallelism at more than one level.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cost.memory.zero_unsharded_buffers import (
    ZeroBufferRule,
    gathered_bytes,
    message_bytes,
    own_gradient_bytes,
)
from meshwright.program.local_shape import Number
from meshwright.program.model_states.state_elements import Elements
from meshwright.stack.stack import Stack

NOTHING = Elements(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes that a stage holds beyond what it kept, and those of what it kept that are free."""

    working: Number
    buffers: Number
    freed: Number = 0


@dataclass(frozen=True, kw_only=True)
class StageBlocks:
    """Facts of the blocks of a stage, by their indices in the model. ``logits``: bytes that the head frees first.

    ``head``: the block with the loss, None if another stage has it; ``tied``: the block whose table the head reads.
    """

    blocks: Sequence[int]
    elements: Callable[[int], Elements]
    kept: Callable[[int], Number]
    working: Callable[[int], Number]
    logits: Number = 0
    head: int | None = None
    tied: int | None = None


RuleOf = Callable[[int], ZeroBufferRule]
"""The rule of each block; all blocks of one layout have one."""


def moments(stage: StageBlocks, rule: RuleOf, stack: Stack) -> Iterator[Moment]:
    """Yield every moment that may be the peak."""
    if stage.head is not None:
        yield Moment(0, _gathered_for_loss(stage, stage.head, rule))
    freed = _Freed(stage)
    for before, block, behind in _neighbours(stage):
        is_first, is_free = freed.is_first(before, block, behind), freed.during(block)
        freed.add(block)
        if is_first:
            yield Moment(stage.working(block), _during(stage, before, block, behind, rule, stack), is_free)
            yield Moment(0, _at_end(stage, before, block, rule, stack), freed.total)


def least_buffers(stage: StageBlocks, rule: RuleOf, stack: Stack) -> Number:
    """Return a lower bound of a stage's buffers at its peak, in bytes.

    Without the head the largest ``working`` adds to it.
    """
    if stage.head is not None:
        return _gathered_for_loss(stage, stage.head, rule)
    found = [_during(stage, *near, rule, stack) for near in dict.fromkeys(_neighbours(stage))]
    return np.min(np.broadcast_arrays(*found), axis=0) if found else 0


def _neighbours(stage: StageBlocks) -> Iterator[tuple[int | None, int, int | None]]:
    """Yield the block before, a block and the block behind, from the last to the first."""
    blocks = stage.blocks
    for i in reversed(range(len(blocks))):
        before = blocks[i - 1] if i else None
        yield before, blocks[i], blocks[i + 1] if i + 1 < len(blocks) else None


def _during(
    stage: StageBlocks,
    before: int | None,
    block: int,
    behind: int | None,
    rule: RuleOf,
    stack: Stack,
) -> Number:
    """Bytes of buffers while a block's backward pass runs."""
    here = stage.elements(block)
    gathered = gathered_bytes(rule(block), here) + _gathered(stage, before, rule)
    sent = 0 if behind is None else message_bytes(rule(behind), _unit(stage, behind), stack)
    return gathered + own_gradient_bytes(rule(block), here) + sent + _of_table(stage, block, rule)


def _at_end(stage: StageBlocks, before: int | None, block: int, rule: RuleOf, stack: Stack) -> Number:
    """Bytes of buffers when a block's gradients have been copied into their message."""
    here, ahead = stage.elements(block), _gathered(stage, before, rule)
    sent = message_bytes(rule(block), here, stack)
    return ahead + own_gradient_bytes(rule(block), here) + sent + _of_table(stage, block, rule)


def _gathered(stage: StageBlocks, block: int | None, rule: RuleOf) -> Number:
    """Bytes of a neighbour's gathered parameters."""
    return 0 if block is None else gathered_bytes(rule(block), _unit(stage, block))


def _unit(stage: StageBlocks, block: int) -> Elements:
    """Return what a neighbour gathers and reduces; a tied table comes and goes at other times."""
    return NOTHING if block == stage.tied else stage.elements(block)


def _of_table(stage: StageBlocks, block: int, rule: RuleOf) -> Number:
    """Bytes of a tied table and its gradients during another block's backward pass."""
    if stage.tied is None or block == stage.tied:
        return 0
    table, of = stage.elements(stage.tied), rule(stage.tied)
    return gathered_bytes(of, table) + own_gradient_bytes(of, table)


def _gathered_for_loss(stage: StageBlocks, head: int, rule: RuleOf) -> Number:
    found = gathered_bytes(rule(head), stage.elements(head))
    return (
        found if stage.tied is None else found + gathered_bytes(rule(stage.tied), stage.elements(stage.tied))
    )


class _Freed:
    """Bytes of what a stage kept that are free behind the blocks so far."""

    def __init__(self, stage: StageBlocks) -> None:
        self.stage, self.seen = stage, set[tuple[int | None, ...]]()
        self.total: Number = 0

    def is_first(self, *near: int | None) -> bool:
        """Return true for the first block with such neighbours: ahead of it less is free."""
        known = near in self.seen
        self.seen.add(near)
        return not known

    def during(self, block: int) -> Number:
        """Return the bytes that are free while a block's backward pass runs."""
        return self.total + (self.stage.logits if block == self.stage.head else 0)

    def add(self, block: int) -> None:
        """End a block's backward pass."""
        self.total = self.total + self.stage.kept(block)


def worst_moment(found: Sequence[Moment]) -> Moment:
    """Return the moment that holds most, plan by plan."""
    parts = [(m.working, m.buffers, m.freed) for m in found]
    parts = [three for at, three in enumerate(parts) if at == 0 or not all(map(_is_zero, three))]
    shapes = {getattr(part, "shape", ()) for three in parts for part in three}
    every = np.empty((3, len(parts), *np.broadcast_shapes(*shapes)))
    for at, three in enumerate(parts):
        every[0, at], every[1, at], every[2, at] = three
    which = (every[0] + every[1] - every[2]).argmax(0)
    return Moment(*np.take_along_axis(every, which[None, None], 1)[:, 0])


def _is_zero(number: Number) -> bool:
    return isinstance(number, int) and number == 0
