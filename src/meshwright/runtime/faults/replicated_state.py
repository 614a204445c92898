"""Fingerprints of the parameters and buffers of which several ranks hold copies.

Copies must be equal to the bit. A fingerprint is the sum of a memory's words, modulo their size: it does not depend on
the order of elements, so that copies may be laid out differently, and any flipped bit changes it. Everything that the
same ranks hold copies of has one fingerprint, so a step costs a few sums over this rank's shard.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

import torch
import torch.distributed as dist

from meshwright.runtime.checkpoint.shard_files import buffer_stretches, parameter_stretches
from meshwright.runtime.executor.rank import Rank
from meshwright.runtime.state.on_host.offloaded_unit import parameters_at
from meshwright.runtime.state.parameter_update import refresh
from meshwright.runtime.state.sharded_unit import Unit

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MOST_STEPS = 4096
"""Steps whose fingerprints are kept between two comparisons: a few hundred bytes each."""
CopyKey = tuple[tuple[int, ...], int]
"""The ranks that hold copies, and the bytes of a word."""


def words(memory: torch.Tensor) -> torch.Tensor:
    """Return a memory's bits as integers of its elements' size."""
    return memory.detach().view(WORDS[memory.element_size()])


@dataclass(frozen=True, slots=True)
class Piece:
    """A contiguous memory of this rank with copies on other ranks: a range of a unit's shard, or a buffer."""

    key: CopyKey
    names: tuple[str, ...]
    unit: Unit | None = None
    here: slice | None = None
    buffer: torch.Tensor | None = None

    def sums(self) -> list[torch.Tensor]:
        """Return the sum of words of each part of the memory, wrapping at the size of a word."""
        memory = (self.buffer.flatten(),) if self.buffer is not None else self._parameters()
        return [words(part).sum(dtype=WORDS[part.element_size()]) for part in memory if len(part)]

    def _parameters(self) -> Sequence[torch.Tensor]:
        assert self.unit is not None
        assert self.here is not None
        return parameters_at(self.unit, self.here)


@dataclass
class ReplicatedState:
    """The fingerprints of one rank behind its last steps, by step. ``pieces`` are merged, ``single`` one per name."""

    rank: Rank
    pieces: list[Piece]
    single: list[Piece]
    behind: "deque[tuple[int, list[tuple[CopyKey, list[torch.Tensor]]]]]" = field(
        default_factory=lambda: deque(maxlen=MOST_STEPS)
    )

    def record(self, step: int) -> None:
        """Take the fingerprints behind a step; on an accelerator nothing waits for them."""
        self.behind.append((step, [(piece.key, piece.sums()) for piece in self.pieces]))

    def last(self) -> dict[CopyKey, int]:
        """Return the fingerprints that were taken last."""
        return _together(self.behind[-1][1]) if self.behind else {}

    def history(self, keys: Sequence[CopyKey]) -> dict[CopyKey, dict[int, int]]:
        """Return the kept fingerprints by step."""
        found: dict[CopyKey, dict[int, int]] = defaultdict(dict)
        for step, sums in self.behind:
            for key, value in _together(sums).items():
                if key in keys:
                    found[key][step] = value
        return found

    def by_name(self, keys: Sequence[CopyKey]) -> dict[str, int]:
        """Return the current fingerprint of each parameter and buffer with these copies."""
        return {
            piece.names[0]: sum(_together([(piece.key, piece.sums())]).values())
            for piece in self.single
            if piece.key in keys
        }

    def flip_bit(self) -> None:
        """Flip the highest bit of the mantissa of a parameter's master copy: it changes by 25 to 50 %.

        The parameter is one of which other ranks hold copies, if there is one.
        """
        copied = (parameters_at(of.unit, of.here) for of in self.single if of.unit and of.here)
        alone = (parameters_at(unit, here) for unit, here, _ in parameter_stretches(self.rank))
        memory = next(part for parts in chain(copied, alone) for part in parts if len(part))
        mantissa_bits = round(-torch.log2(torch.tensor(torch.finfo(memory.dtype).eps)).item())
        words(memory)[:1].bitwise_xor_(1 << (mantissa_bits - 1))
        refresh(self.rank.plan)


def replicated_state(rank: Rank, ranks: Sequence[int], group: dist.ProcessGroup | None) -> ReplicatedState:
    """Find what several of ``ranks``, those of ``group``, hold copies of; each of them must call it."""
    own = list(_stretches(rank))
    everyone: list[list[bytes]] = [[]] * len(ranks)
    if len(ranks) > 1:
        with rank.communicator.naming("lists of copies", tuple(ranks)):
            dist.all_gather_object(everyone, [digest for digest, _ in own], group=group)
    holders: dict[bytes, list[int]] = defaultdict(list)
    for other, digests in zip(ranks, everyone, strict=True):
        for digest in digests:
            holders[digest].append(other)
    found = [
        Piece((tuple(holders[digest]), piece.key[1]), piece.names, piece.unit, piece.here, piece.buffer)
        for digest, piece in own
        if len(holders[digest]) > 1
    ]
    return ReplicatedState(rank, list(_merged(found)), found)


def _stretches(rank: Rank) -> Iterator[tuple[bytes, Piece]]:
    """Yield this rank's parameters and buffers, with a digest that copies share."""
    for unit, here, stretch in parameter_stretches(rank):
        size = stretch.memory[0].element_size()
        yield _digest(stretch.name, stretch.owner), Piece(((), size), (stretch.tensor.name,), unit, here)
    for stretch in buffer_stretches(rank):
        (memory,) = stretch.memory
        piece = Piece(((), memory.element_size()), (stretch.tensor.name,), buffer=memory)
        yield _digest(stretch.name, stretch.owner), piece


def _digest(name: str, owner: int) -> bytes:
    return blake2b(f"{owner} {name}".encode(), digest_size=8).digest()


def _merged(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yield pieces, merged where they are adjacent in a shard."""
    last: Piece | None = None
    for piece in pieces:
        if last is not None and _adjacent(last, piece):
            assert last.here is not None
            assert piece.here is not None
            here = slice(last.here.start, piece.here.stop)
            last = Piece(last.key, last.names + piece.names, last.unit, here)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def _adjacent(last: Piece, piece: Piece) -> bool:
    same = last.unit is piece.unit and last.key == piece.key
    return bool(same and last.here and piece.here) and last.here.stop == piece.here.start  # type: ignore[union-attr]


def _together(sums: Sequence[tuple[CopyKey, list[torch.Tensor]]]) -> dict[CopyKey, int]:
    """Return one fingerprint for each set of ranks."""
    found: Mapping[CopyKey, int]
    found = defaultdict(int)
    for key, parts in sums:
        found[key] = (found[key] + sum(int(part) for part in parts)) % 2 ** (8 * key[1])
    return dict(found)
