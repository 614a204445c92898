"""Compare the bytes that depend on the router's choices, over all ranks in a step, with the expected ones.

The bytes within one group depend on its tokens' choices. For rows that are gathered over etp, all groups together move
what the Program counts. Deduplicated copies are as many as tokens reach ranks, or nodes: counted here from the choices
of the reference's routers. So are the rows of experts with a capacity, unless they are padded, and the buckets of
similar rows.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch

from meshwright.model.operators.operator_types import Dispatch
from meshwright.program.expert_dispatch.dispatch_forms import ACROSS, EP
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective, PassKind, exchanges_of, legs_of
from meshwright.program.program import Program
from meshwright.runtime.comm.communicator import Traffic
from meshwright.runtime.comm.process_groups import Axes
from meshwright.runtime.verify.expected_traffic import STEP, EntryTraffic, in_pass
from meshwright.schedules.action import PASS_KINDS

Experts = Sequence[torch.Tensor]
"""The chosen experts of each token of a step, (…, chosen), for each routed layer; ``NOWHERE`` if no row is sent."""
NOWHERE = -1
EACH = 0
"""Stands for a row per choice, in place of a number of experts per part."""


def routed_differences(program: Program, logs: Iterable[Iterable[Traffic]], chosen: Experts) -> Iterator[str]:
    """Yield, as text, where all ranks together moved other bytes in a step than the reference's ``chosen`` require."""
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


def token_exchanges(
    program: Program, logs: Sequence[Sequence[Sequence[Traffic]]], chosen: Sequence[Experts]
) -> list[EntryTraffic]:
    """Compare the bytes of centroids of all ranks (rank, step, entry of the log) with the reference's buckets.

    Exchanges are those of the rank with most.
    """
    hashing = program.parts[0].shape.hashing
    if hashing is None:
        return []
    sent = [[entry for of_step in log for entry in of_step if _of_tokens(entry)] for log in logs]
    logged = sum(int(entry.logical_bytes) for of_rank in sent for entry in of_rank)
    predicted = sum(_as_chosen(program, of_step)[EP] for of_step in chosen)
    of = [Counter({("all-to-all", EP, float(size)): 1}) for size in (logged, predicted)]
    return [EntryTraffic(hashing.entry, max(map(len, sent)), *of)]


def _of_tokens(entry: Traffic) -> bool:
    return entry.routed and entry.axes == EP


def without_shared_buckets(program: Program, chosen: Experts) -> Iterator[str]:
    """Say that no bucket of the reference held several tokens in a step: it shows nothing of buckets."""
    if program.parts[0].shape.hashing is not None and not any((of == NOWHERE).any() for of in chosen):
        yield f"{STEP}: no bucket of similar tokens holds several"


def _as_balanced(program: Program) -> Counter[Axes]:
    classes, sums = program.parts.ranks // program.pipeline_ranks, Counter[Axes]()
    passes = [(r, a) for r, actions in enumerate(program.lists) for a in actions if a.kind in PASS_KINDS]
    for pipeline_rank, action in passes:
        for item in in_pass(program, action, program.parts.members(pipeline_rank)[0]):
            if item.routed and item.once is None and not program.parts[item.part].shape.rows_as_routed:
                sums[item.axes] += classes * int(item.logical_bytes)
    return sums


def _as_chosen(program: Program, chosen: Experts) -> Counter[Axes]:
    """Return the bytes that follow from the choices: each micro-batch runs each layer once per kind of pass."""
    kinds = {action.kind for actions in program.lists for action in actions}
    of_blocks: dict[int, list[tuple[Collective, int, int]]] = {}
    for block, kind in program.block_items:
        if kind in kinds:
            of_blocks.setdefault(block, []).extend(_legs(program, block, kind))
    of_layers = [(layer, legs) for layer, block in enumerate(_layers(program)) if (legs := of_blocks[block])]
    sums = Counter[Axes]()
    blocks = _layers(program)
    for (layer, legs), experts in zip(of_layers, chosen if of_layers else (), strict=True):
        order = program.parts.of(blocks[layer]).expert_order(layer)
        places = experts if order is None else torch.tensor(order).argsort()[experts.cpu()]
        places = places.masked_fill(experts.to(places.device) == NOWHERE, NOWHERE)
        for leg, row_bytes, of_part in legs:
            rows = _reached(places.flatten(0, -2) // of_part) if of_part else int((places != NOWHERE).sum())
            sums[leg.axes] += row_bytes * rows
    return sums


def _layers(program: Program) -> list[int]:
    """Return the block of each layer; equal layers share one."""
    of_layers: dict[int, int] = {}
    for stage in program.stages:
        blocks = [block for block in stage.blocks if program.blocks[block].kind == "layer"]
        of_layers |= zip(stage.layers, blocks, strict=True)
    return [of_layers[layer] for layer in sorted(of_layers)]


def _legs(program: Program, block: int, kind: PassKind) -> Iterator[tuple[Collective, int, int]]:
    """Yield the counted legs with the bytes of a row and the number of experts in each destination of copies."""
    ops = [op for op in program.blocks[block].operators if isinstance(op, Dispatch)]
    part = program.parts.of(block)
    exchanges = [c for item in program.block_items[block, kind] for c in exchanges_of(item) if c.routed]
    for one in exchanges if part.shape.rows_as_routed else ():
        if one.once is None:
            members = int(part.shape.etp) if one.axes != EP else 1
            yield one, ACTIVATION_BYTES * ops[0].width * members, EACH
    for one in exchanges:
        for leg in legs_of(one, part.expert_grid) if one.once else ():
            of_rank = ops[0].experts // int(part.shape.ep)
            of_part = of_rank * int(part.shape.ep_inside) if leg.axes == (ACROSS,) else of_rank
            yield leg, ACTIVATION_BYTES * ops[0].width, of_part


def _reached(parts: torch.Tensor) -> int:
    """Return the number of distinct parts of each row, summed over rows; negative parts do not count."""
    ordered = parts.sort(-1).values
    different = len(parts) + int((ordered[:, 1:] != ordered[:, :-1]).sum())
    return different - int((ordered[:, 0] < 0).sum())
