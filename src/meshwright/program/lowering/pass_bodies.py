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


def pass_body(
    blocks: Sequence[int],
    kind: PassKind,
    units: UnitExchanges,
    together: tuple[Collective, ...] = (),
    shared: Shared | None = None,
) -> Body:
    """Return the body of a pass over ``blocks`` (indices in forward order).

    ``together`` gathers all of them at once. ``shared``: one unit holds the table of both ends.
    """
    order = list(blocks) if kind == "F" else list(reversed(blocks))
    needed: list[tuple[Collective, ...]] = [()] * len(order)
    if kind in units.ahead:
        needed = [_all(of_block, units.gathers) for of_block in units_needed(order, kind, shared)]
    reduced = [units.reductions.get(block, ()) if kind in ("B", "W") else () for block in order]
    body = _layer_by_layer(order, kind, needed, reduced, units.hidden)
    return (Segment(None, kind, 1, together), *body) if together and kind == "F" else body


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


def _all(units: Sequence[int], gathers: UnitCollectives) -> tuple[Collective, ...]:
    if len(units) == 1:
        return gathers.get(units[0], ())
    return tuple(collective for unit in units for collective in gathers.get(unit, ()))


def _layer_by_layer(
    order: list[int],
    kind: PassKind,
    needed: list[tuple[Collective, ...]],
    reduced: list[tuple[Collective, ...]],
    hidden: bool,
) -> Body:
    """Return the blocks of a pass, each overlapped with the next one's gathers and the last one's reductions."""
    behind = [(), *reduced] if hidden else [()] * len(order) + [tuple(c for of in reduced for c in of)]
    steps: list[tuple[int | None, tuple[Collective, ...]]] = [(None, needed[0])]
    for block, ahead, left in zip(order, [*needed[1:], ()], behind, strict=False):
        steps.append((block, ahead + left))
    steps.append((None, behind[-1]))
    runs = [list(run) for _, run in groupby(steps, key=_identity)]
    return tuple(Segment(run[0][0], kind, len(run), run[0][1]) for run in runs if run[0] != (None, ()))


def _identity(step: tuple[int | None, tuple[Collective, ...]]) -> tuple[int | None, tuple[int, ...]]:
    """Equal steps share their collectives' objects; comparing by value would compare arrays."""
    return step[0], tuple(id(collective) for collective in step[1])
