"""Count the bytes that a change of layout between two blocks moves: activations forward, gradients backward.

Inside a pipeline rank it is an item of a pass, between two of them it takes the place of the messages. Times depend on
the busiest rank: on what it sends or receives inside a fast domain and beyond, whichever is more. What a rank keeps
moves nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from meshwright.program.layouts.activation_transfers import Transfer, transfers
from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.program_parts import ProgramParts

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
    found = {
        way: moved_bytes(reshard_transfers(parts, *pair), hidden, domain)
        for way, pair in (("F", (ends[0], ends[1])), ("B", (ends[1], ends[0])))
    }
    return Reshard(source, target, source_rank, target_rank, found["F"], found["B"])


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
    busy: dict[bool, Counter[tuple[str, int]]] = {True: Counter(), False: Counter()}
    total = 0
    for transfer in found:
        if transfer.source == transfer.target:
            continue
        size = transfer_bytes(transfer, hidden)
        total += size
        inside = transfer.source // domain == transfer.target // domain
        busy[inside]["out", transfer.source] += size
        busy[inside]["in", transfer.target] += size
    inside_bytes, across_bytes = (max(busy[near].values(), default=0) for near in (True, False))
    return MovedBytes(total, inside_bytes, across_bytes)
