"""From the blocks of a stage to the bodies of its passes, with sharded parameters gathered layer by layer.

With ``gather: per-layer`` the parameters of the next unit are gathered beside the current one, forward and
backward, and the gradients of the unit before are reduced beside it; the first gather and the last reduction of
a pass have nothing to hide behind (FSDP's implicit prefetch; Zhao et al., arXiv 2304.11277, section 3.3). With
``per-micro-batch`` the forward pass gathers its whole stage first, which stays whole until its backward pass has ended.
Works for one plan and for arrays of plans.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from meshwright.program.items import Body, Collective, PassKind, Segment

UnitCollectives = Mapping[int, tuple[Collective, ...]]
Shared = tuple[int, int]
"""The blocks of embedding and head, where one rank holds both and the table is one."""


def pass_body(
    blocks: Sequence[int],
    kind: PassKind,
    gather: str,
    gathers: UnitCollectives,
    reductions: UnitCollectives,
    together: tuple[Collective, ...] = (),
    shared: Shared | None = None,
) -> Body:
    """The body of a pass over ``blocks`` (indices in forward order).

    ``together`` gathers all of them at once. ``shared``: one unit holds the table of both ends.
    """
    order = list(blocks) if kind == "F" else list(reversed(blocks))
    if gather == "per-layer":
        needed = [_all(units, gathers) for units in units_needed(order, kind, shared)]
        return _layer_by_layer(order, kind, needed, reductions)
    body = [Segment(block, kind, len(list(run))) for block, run in groupby(order)]
    if gather == "per-micro-batch" and kind == "F":
        return (Segment(None, kind, 1, together), *body)
    return tuple(body)


def units_needed(order: Sequence[int], kind: PassKind, shared: Shared | None) -> list[tuple[int, ...]]:
    """Which units are gathered for each block of a pass, blocks in the pass's order; no W needs any.

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
    order: list[int], kind: PassKind, needed: list[tuple[Collective, ...]], reductions: UnitCollectives
) -> Body:
    steps: list[tuple[int | None, tuple[Collective, ...]]] = []
    if kind != "W":
        steps.append((None, needed[0]))
    for i, block in enumerate(order):
        ahead = needed[i + 1] if i + 1 < len(order) else ()
        behind = reductions.get(order[i - 1], ()) if kind in ("B", "W") and i > 0 else ()
        steps.append((block, ahead + behind))
    if kind in ("B", "W"):
        steps.append((None, reductions.get(order[-1], ())))
    runs = [list(run) for _, run in groupby(steps, key=_identity)]
    return tuple(Segment(run[0][0], kind, len(run), run[0][1]) for run in runs if run[0] != (None, ()))


def _identity(step: tuple[int | None, tuple[Collective, ...]]) -> tuple[int | None, tuple[int, ...]]:
    """Equal steps share their collectives' objects; comparing by value would compare arrays."""
    return step[0], tuple(id(collective) for collective in step[1])
