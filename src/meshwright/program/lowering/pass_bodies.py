"""Build the bodies of a stage's passes from its blocks, with states gathered and reduced layer by layer.

With ``gather: per-layer`` the parameters of the next unit are gathered during the current one, forward and
backward, and the gradients of the unit before are reduced during it; the first gather and the last reduction of
a pass have nothing to hide behind (FSDP's implicit prefetch; Zhao et al., arXiv 2304.11277, section 3.3). With
``per-micro-batch`` parameters stay whole from the forward to the end of the backward pass: they come one ahead in the
forward pass, or a whole stage at once before it (``Stack.gathers_layers_ahead``). Gradients that are reduced once a
step are no matter of a pass; those of every micro-batch follow one behind in the backward pass, or all together
after it where the stack hides no reduction. Works for one plan and for arrays of plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from meshwright.program.pass_items import Body, Collective, PassKind, Segment
from meshwright.program.reshard import Reshard

UnitCollectives = Mapping[int, tuple[Collective, ...]]
Shared = tuple[int, int]
"""The blocks of embedding and head, where one rank holds both and the table is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitExchanges:
    """State exchanges of passes by block: ``gathers`` of parameters, ``reductions`` of gradients.

    ``ahead`` are the passes that gather layer by layer; ``hidden``: reductions overlap the next block.
    """

    gathers: UnitCollectives
    reductions: UnitCollectives
    ahead: frozenset[PassKind] = frozenset()
    hidden: bool = True

    def gathered(self, block: int, kind: PassKind) -> tuple[Collective, ...]:
        """Return the gathers of a block that a pass has."""
        return self.gathers.get(block, ()) if kind in self.ahead else ()

    def reduced(self, block: int, kind: PassKind) -> tuple[Collective, ...]:
        """Return the reductions of a block that a pass has."""
        return self.reductions.get(block, ()) if kind in ("B", "W") else ()

    def hides(self, block: int) -> bool:
        """Return true if the reductions of a block overlap the next block."""
        return self.hidden


@dataclass(frozen=True, slots=True)
class ExchangesOfParts:
    """State exchanges of blocks that have different layouts, by block."""

    of_blocks: Mapping[int, UnitExchanges]

    def gathered(self, block: int, kind: PassKind) -> tuple[Collective, ...]:
        """Return the gathers of a block that a pass has."""
        return self.of_blocks[block].gathered(block, kind)

    def reduced(self, block: int, kind: PassKind) -> tuple[Collective, ...]:
        """Return the reductions of a block that a pass has."""
        return self.of_blocks[block].reduced(block, kind)

    def hides(self, block: int) -> bool:
        """Return true if the reductions of a block overlap the next block."""
        return self.of_blocks[block].hidden


def pass_body(
    blocks: Sequence[int],
    kind: PassKind,
    units: UnitExchanges | ExchangesOfParts,
    together: tuple[Collective, ...] = (),
    shared: Shared | None = None,
    reshards: Mapping[int, Reshard] | None = None,
) -> Body:
    """Return the body of a pass over ``blocks`` (indices in forward order).

    ``together`` gathers all of them at once. ``shared``: one unit holds the table of both ends. ``reshards``: the
    changes of layout before blocks, by their places in ``blocks``.
    """
    order = list(blocks) if kind == "F" else list(reversed(blocks))
    needed = [
        tuple(collective for block in of_block for collective in units.gathered(block, kind))
        if len(of_block) != 1
        else units.gathered(of_block[0], kind)
        for of_block in units_needed(order, kind, shared)
    ]
    body = _layer_by_layer(order, kind, needed, units, _places(reshards or {}, kind, len(order)))
    runs = [tuple(run) for _, run in groupby(together, key=lambda gather: gather.part)]
    return (*(Segment(None, kind, 1, run) for run in runs), *body) if kind == "F" else body


def _places(reshards: Mapping[int, Reshard], kind: PassKind, blocks: int) -> dict[int, Reshard]:
    """Return the changes of layout that a pass has, by the place in its order that they come before."""
    if kind == "F":
        return dict(reshards)
    return {blocks - place: reshard for place, reshard in reshards.items()} if kind in ("B", "I") else {}


def units_needed(order: Sequence[int], kind: PassKind, shared: Shared | None) -> list[tuple[int, ...]]:
    """Return the units gathered for each block of a pass, blocks in the pass's order; W needs none.

    Where the ends share a table, it stays whole from the embedding to a head of the same pass; a backward pass gathers
    it for the head and not again for the embedding, whose gradient does not need it.
    """
    if kind == "W":
        return [() for _ in order]
    if shared is None:
        return [(block,) for block in order]
    embed, head = shared
    again = kind != "F" or embed not in order
    return [
        (head, embed) if block == head and again else () if block == embed and kind != "F" else (block,)
        for block in order
    ]


Step = tuple[int | None, tuple[Collective, ...], Reshard | None]


def _layer_by_layer(
    order: list[int],
    kind: PassKind,
    needed: list[tuple[Collective, ...]],
    units: UnitExchanges | ExchangesOfParts,
    reshards: Mapping[int, Reshard],
) -> Body:
    """Return the blocks of a pass, each overlapped with the next one's gathers and the last one's reductions."""
    reduced = [units.reduced(block, kind) for block in order]
    behind = [(), *(own if units.hides(block) else () for block, own in zip(order, reduced, strict=True))]
    late = [own for block, own in zip(order, reduced, strict=True) if not units.hides(block)]
    behind[-1] += tuple(collective for own in late for collective in own)
    steps: list[Step] = [(None, needed[0], None)]
    for at, (block, ahead, left) in enumerate(zip(order, [*needed[1:], ()], behind, strict=False)):
        steps += [(None, (), reshards[at])] if at in reshards else []
        steps.append((block, ahead + left, None))
    steps += [(None, (), reshards[len(order)])] if len(order) in reshards else []
    steps.append((None, behind[-1], None))
    runs = [list(run) for _, run in groupby(steps, key=_identity)]
    return tuple(
        Segment(run[0][0], kind, len(run), run[0][1], run[0][2]) for run in runs if run[0] != (None, (), None)
    )


def _identity(step: Step) -> tuple[int | None, tuple[int, ...], int]:
    """Equal steps share their collectives' objects; comparing by value would compare arrays."""
    return step[0], tuple(id(collective) for collective in step[1]), id(step[2])
