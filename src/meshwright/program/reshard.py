"""Count the bytes that a change of layout between two blocks moves: activations forward, gradients backward.

Inside a pipeline rank it is an item of a pass, between two of them it takes the place of the messages. Times depend on
the busiest rank: on what it sends or receives inside a fast domain and beyond, whichever is more. What a rank keeps
moves nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Literal, NamedTuple

from meshwright.program.layouts.activation_transfers import Transfer, transfers
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.program_parts import Part, ProgramParts

Way = Literal["F", "B"]
"""Activations forward, gradients backward."""


class MovedBytes(NamedTuple):
    """Bytes that all ranks send together, and those of the busiest rank inside a fast domain and across."""

    total: int
    inside: int
    across: int


@dataclass(frozen=True, slots=True)
class Reshard:
    """A change from part ``source`` on pipeline rank ``source_rank`` to part ``target`` on ``target_rank``."""

    source: int
    target: int
    source_rank: int
    target_rank: int
    forward: MovedBytes
    backward: MovedBytes

    def moved(self, way: Way) -> MovedBytes:
        """Return what moves in a direction."""
        return self.forward if way == "F" else self.backward


def reshard_between(
    parts: ProgramParts,
    ends: tuple[tuple[int, int], tuple[int, int]],
    hidden: int,
    domain: int,
) -> Reshard:
    """Return the change between two ``ends``: (part, pipeline rank) of the block before and of the block behind."""
    (source, source_rank), (target, target_rank) = ends
    copies, few, own = 1, parts, ends
    if period := _period(parts[source], parts[target], domain):
        copies = parts[source].grid.ranks // parts[source].grid.sizes["pp"] // period
        apart = source_rank != target_rank
        few = ProgramParts(tuple(_on_ranks(parts[part], period, 1 + apart) for part in (source, target)), ())
        own = (0, 0), (1, int(apart))
    found = {
        way: _times(moved_bytes(reshard_transfers(few, *pair), hidden, domain), copies)
        for way, pair in (("F", (own[0], own[1])), ("B", (own[1], own[0])))
    }
    return Reshard(source, target, source_rank, target_rank, found["F"], found["B"])


def _times(moved: MovedBytes, copies: int) -> MovedBytes:
    """Return what as many equal sets of ranks move."""
    return moved._replace(total=copies * moved.total)


def _period(source: Part, target: Part, domain: int) -> int | None:
    """Return the number of ranks of a pipeline rank after which transfers repeat; None where they may not.

    With replicas outside of everything else, and whole fast domains in a pipeline rank, the first ranks of two layouts
    that have equally many sequences exchange them among each other, and so do the next ones.
    """
    inner = []
    for part in (source, target):
        order = part.grid.order
        usual = set(order[:2]) == {"tp", "cp"} and order[2:] == ("dp_shard", "dp_replicate", "pp")
        if not usual or part.batch_share:
            return None
        inner.append(part.grid.size(("tp", "cp")))
    period, ranks = lcm(*inner, domain), source.grid.ranks // source.grid.sizes["pp"]
    return period if ranks % period == 0 and period < ranks else None


def _on_ranks(part: Part, ranks: int, pipeline_ranks: int) -> Part:
    """Return the part with the first ranks of so many pipeline ranks alone."""
    replicas = ranks // part.grid.size(("tp", "cp"))
    sizes = {**part.grid.sizes, "dp_replicate": 1, "dp_shard": replicas, "pp": pipeline_ranks}
    return replace(part, grid=replace(part.grid, sizes=sizes))


def reshard_transfers(
    parts: ProgramParts, giver: tuple[int, int], taker: tuple[int, int]
) -> Sequence[Transfer]:
    """Return the transfers from one (part, pipeline rank) to another."""
    (source, source_rank), (target, target_rank) = giver, taker
    return tuple(
        transfers(parts[source], parts[target], parts.members(source_rank), parts.members(target_rank))
    )


def way_transfers(parts: ProgramParts, reshard: Reshard, way: Way) -> Sequence[Transfer]:
    """Return the transfers of a change in a direction."""
    before, behind = (reshard.source, reshard.source_rank), (reshard.target, reshard.target_rank)
    return reshard_transfers(parts, *((before, behind) if way == "F" else (behind, before)))


def transfer_bytes(transfer: Transfer, hidden: int) -> int:
    """Bytes of a transfer."""
    return ACTIVATION_BYTES * hidden * transfer.tokens


def moved_bytes(found: Iterable[Transfer], hidden: int, domain: int) -> MovedBytes:
    """Return what transfers between different ranks move; ``domain`` ranks in a row share a fast domain."""
    return busiest_bytes(((one.source, one.target, transfer_bytes(one, hidden)) for one in found), domain)


def busiest_bytes(moves: Iterable[tuple[int, int, int]], domain: int) -> MovedBytes:
    """Return what moves of (source, target, bytes) amount to; what a rank keeps moves nothing."""
    busy: dict[bool, Counter[tuple[str, int]]] = {True: Counter(), False: Counter()}
    total = 0
    for source, target, size in moves:
        if source == target:
            continue
        total += size
        inside = source // domain == target // domain
        busy[inside]["out", source] += size
        busy[inside]["in", target] += size
    inside_bytes, across_bytes = (max(busy[near].values(), default=0) for near in (True, False))
    return MovedBytes(total, inside_bytes, across_bytes)
