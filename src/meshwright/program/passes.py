"""From the blocks of a stage to the bodies of its passes, with sharded parameters gathered layer by layer.

With ``gather: per-layer`` the parameters of the next unit are gathered beside the current one, forward and
backward, and the gradients of the unit before are reduced beside it; the first gather and the last reduction of
a pass have nothing to hide behind (FSDP's implicit prefetch; Zhao et al., arXiv 2304.11277, section 3.3). With
``per-micro-batch`` the forward pass gathers all units of its stage first, and they stay whole until its backward
pass. Works for one plan and for arrays of plans.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from meshwright.program.items import Body, Collective, PassKind, Segment

UnitCollectives = Mapping[int, tuple[Collective, ...]]


def pass_body(
    blocks: Sequence[int],
    kind: PassKind,
    gather: str,
    gathers: UnitCollectives,
    reductions: UnitCollectives,
) -> Body:
    """The body of a pass over ``blocks`` (indices in forward order)."""
    order = list(blocks) if kind == "F" else list(reversed(blocks))
    if gather == "per-layer":
        return _layer_by_layer(order, kind, gathers, reductions)
    body = [Segment(block, kind, len(list(run))) for block, run in groupby(order)]
    if gather == "per-micro-batch" and kind == "F":
        exposed = tuple(c for block in order for c in gathers.get(block, ()))
        return (Segment(None, kind, 1, exposed), *body)
    return tuple(body)


def _layer_by_layer(
    order: list[int], kind: PassKind, gathers: UnitCollectives, reductions: UnitCollectives
) -> Body:
    steps: list[tuple[int | None, tuple[Collective, ...]]] = []
    if kind != "W":
        steps.append((None, gathers.get(order[0], ())))
    for i, block in enumerate(order):
        ahead = gathers.get(order[i + 1], ()) if kind != "W" and i + 1 < len(order) else ()
        behind = reductions.get(order[i - 1], ()) if kind in ("B", "W") and i > 0 else ()
        steps.append((block, ahead + behind))
    if kind in ("B", "W"):
        steps.append((None, reductions.get(order[-1], ())))
    runs = [list(run) for _, run in groupby(steps, key=_identity)]
    return tuple(Segment(run[0][0], kind, len(run), run[0][1]) for run in runs if run[0] != (None, ()))


def _identity(step: tuple[int | None, tuple[Collective, ...]]) -> tuple[int | None, tuple[int, ...]]:
    """Equal steps share their collectives' objects; comparing by value would compare arrays."""
    return step[0], tuple(id(collective) for collective in step[1])
