"""Bytes that depend on what routers chose, over all ranks in a step: those logged against those that there should be.

What is moved within one group depends on what its tokens chose. Of rows that are gathered over etp all groups together
move what the Program says. Of copies that go once there are as many as tokens reach ranks, or nodes: counted here from
what the routers of the reference chose. So are the rows that experts with a capacity get, where they do not pad.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from meshwright.model.operators import Dispatch
from meshwright.program.exchange import ACROSS, EP
from meshwright.program.items import Collective, PassKind, exchanges_of, legs_of
from meshwright.program.program import Program, expert_order
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.communicator import Axes, Traffic
from meshwright.runtime.verify.traffic import STEP, in_pass
from meshwright.schedule.action import PASS_KINDS

Experts = Sequence[torch.Tensor]
"""The experts that each token of a step chose, (…, chosen), for each routed layer; ``NOWHERE`` where it is dropped."""
NOWHERE = -1
EACH = 0
"""In place of the experts of a part: a row for each choice."""


def routed_differences(program: Program, logs: Iterable[Iterable[Traffic]], chosen: Experts) -> Iterator[str]:
    """Where all ranks together moved other bytes in a step, in words; the reference has ``chosen``."""
    found = Counter[Axes]()
    for entry in (entry for log in logs for entry in log if entry.routed):
        found[entry.axes] += int(entry.logical_bytes)
    expected = _as_balanced(program) + _as_chosen(program, chosen)
    for axes in sorted({*found, *expected}):
        if found[axes] != expected[axes]:
            yield (
                f"{STEP}: exchanges of routed rows over {', '.join(axes)} move {found[axes]} bytes among all ranks, "
                f"expected {expected[axes]}"
            )


def _as_balanced(program: Program) -> Counter[Axes]:
    classes, sums = program.grid.ranks // program.pipeline_ranks, Counter[Axes]()
    for action in (action for actions in program.lists for action in actions if action.kind in PASS_KINDS):
        for item in in_pass(program, action):
            if item.routed and item.once is None and not program.shape.rows_as_routed:
                sums[item.axes] += classes * int(item.logical_bytes)
    return sums


def _as_chosen(program: Program, chosen: Experts) -> Counter[Axes]:
    """Every micro-batch goes through each layer once in every kind of pass."""
    kinds = {action.kind for actions in program.lists for action in actions}
    of_blocks: dict[int, list[tuple[Collective, int, int]]] = {}
    for block, kind in program.block_items:
        if kind in kinds:
            of_blocks.setdefault(block, []).extend(_legs(program, block, kind))
    of_layers = [(layer, legs) for layer, block in enumerate(_layers(program)) if (legs := of_blocks[block])]
    sums = Counter[Axes]()
    for (layer, legs), experts in zip(of_layers, chosen if of_layers else (), strict=True):
        order = expert_order(program, layer)
        places = experts if order is None else torch.tensor(order).argsort()[experts.cpu()]
        places = places.masked_fill(experts.to(places.device) == NOWHERE, NOWHERE)
        for leg, row_bytes, of_part in legs:
            rows = _reached(places.flatten(0, -2) // of_part) if of_part else int((places != NOWHERE).sum())
            sums[leg.axes] += row_bytes * rows
    return sums


def _layers(program: Program) -> list[int]:
    """The block of each layer; layers that are alike have one."""
    of_layers: dict[int, int] = {}
    for stage in program.stages:
        blocks = [block for block in stage.blocks if program.blocks[block].kind == "layer"]
        of_layers |= zip(stage.layers, blocks, strict=True)
    return [of_layers[layer] for layer in sorted(of_layers)]


def _legs(program: Program, block: int, kind: PassKind) -> Iterator[tuple[Collective, int, int]]:
    """Legs whose rows are counted, the bytes of a row, and how many experts each part has that copies go to."""
    ops = [op for op in program.blocks[block].operators if isinstance(op, Dispatch)]
    exchanges = [c for item in program.block_items[block, kind] for c in exchanges_of(item) if c.routed]
    for one in exchanges if program.shape.rows_as_routed else ():
        if one.once is None:
            members = int(program.shape.etp) if one.axes != EP else 1
            yield one, ACTIVATION_BYTES * ops[0].width * members, EACH
    for one in exchanges:
        for leg in legs_of(one, program.expert_grid) if one.once else ():
            of_rank = ops[0].experts // int(program.shape.ep)
            of_part = of_rank * int(program.shape.ep_inside) if leg.axes == (ACROSS,) else of_rank
            yield leg, ACTIVATION_BYTES * ops[0].width, of_part


def _reached(parts: torch.Tensor) -> int:
    """Different parts of all rows together; what is below 0 is none."""
    ordered = parts.sort(-1).values
    different = len(parts) + int((ordered[:, 1:] != ordered[:, :-1]).sum())
    return different - int((ordered[:, 0] < 0).sum())
