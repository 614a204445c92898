"""Ranks that hold real arrays: transfers are carried out literally, and the elements that are sent are counted."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from meshwright.program.layouts.rank_mesh import RankGrid
from meshwright.program.layouts.reshard import Transfer
from meshwright.program.layouts.tensor_layout import Layout, Partial, Replicate, Shard


@dataclass
class Machine:
    """One array per rank, and the elements sent so far."""

    shape: tuple[int, ...]
    held: list[np.ndarray]
    sent: int = 0

    def run(self, transfer: Transfer) -> None:
        ACTS[transfer.kind](self, transfer)


def spread(whole: np.ndarray, layout: Layout, rng: np.random.Generator) -> Machine:
    """Every rank's part; along partial axes random summands that add up to the tensor."""
    held = [np.empty(0)] * layout.grid.ranks
    for members in _groups(layout.grid, layout.partial_axes):
        part = whole[layout.local_slice(members[0], whole.shape)]
        summands = [rng.integers(-99, 99, part.shape) for _ in members[1:]]
        for rank, value in zip(members, [part - sum(summands), *summands], strict=True):
            held[rank] = value
    return Machine(whole.shape, held)


def collected(machine: Machine, layout: Layout) -> list[np.ndarray]:
    """What every rank holds once sums are added up."""
    result = list(machine.held)
    for members in _groups(layout.grid, layout.partial_axes):
        total = sum(machine.held[rank] for rank in members)
        for rank in members:
            result[rank] = np.asarray(total)
    return result


def _groups(grid: RankGrid, axes) -> list[list[int]]:
    """Ranks that differ in ``axes`` only, counted out from their coordinates."""
    groups: dict[tuple, list[int]] = {}
    for rank in range(grid.ranks):
        place = grid.coordinates(rank)
        groups.setdefault(tuple(sorted((a, i) for a, i in place.items() if a not in axes)), []).append(rank)
    return list(groups.values())


def _of(transfer: Transfer) -> list[list[int]]:
    grid = transfer.source.grid
    return [list(range(grid.ranks))] if transfer.axes == ("world",) else _groups(grid, transfer.axes)


def _place(machine: Machine, transfer: Transfer, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """A tensor with what the rank held where it belongs, and which of its elements are known."""
    values = np.zeros(machine.shape, dtype=np.int64)
    known = np.zeros(machine.shape, dtype=bool)
    part = transfer.source.local_slice(rank, machine.shape)
    values[part], known[part] = machine.held[rank], True
    return values, known


def _slice(machine: Machine, transfer: Transfer) -> None:
    (axis,) = transfer.axes
    source, target = transfer.source, transfer.target
    summand = isinstance(target.placement(axis), Partial)
    replica = summand and not isinstance(source.placement(axis), Shard)
    for rank in range(source.grid.ranks):
        values, known = _place(machine, transfer, rank)
        if replica and source.grid.coordinates(rank)[axis]:
            values[:] = 0
        part = target.local_slice(rank, machine.shape)
        assert summand or known[part].all()
        machine.held[rank] = values[part]


def _all_gather(machine: Machine, transfer: Transfer) -> None:
    new = list(machine.held)
    for members in _of(transfer):
        values, known = np.zeros(machine.shape, dtype=np.int64), np.zeros(machine.shape, dtype=bool)
        for rank in members:
            one, here = _place(machine, transfer, rank)
            assert not (here & known).any()
            values, known = values + one, known | here
        for rank in members:
            part = transfer.target.local_slice(rank, machine.shape)
            assert known[part].all()
            new[rank] = values[part]
            machine.sent += new[rank].size - machine.held[rank].size
    machine.held = new


def _reduce(machine: Machine, transfer: Transfer) -> None:
    passes = {"reduce-scatter": 1, "all-reduce": 2}[transfer.kind]
    new = list(machine.held)
    for members in _of(transfer):
        assert len({machine.held[rank].shape for rank in members}) == 1
        machine.sent += passes * (len(members) - 1) * machine.held[members[0]].size
        for rank in members:
            values, _ = _place(machine, transfer, rank)
            values[transfer.source.local_slice(rank, machine.shape)] = sum(machine.held[r] for r in members)
            new[rank] = values[transfer.target.local_slice(rank, machine.shape)]
    machine.held = new


def _all_to_all(machine: Machine, transfer: Transfer) -> None:
    new = list(machine.held)
    target = transfer.target
    for members in _of(transfer):
        placed = {rank: _place(machine, transfer, rank) for rank in members}
        for rank in members:
            part = target.local_slice(rank, machine.shape)
            values, known = placed[rank]
            result, have = values[part].copy(), known[part].copy()
            wanted = not any(target.grid.coordinates(rank)[a] for a in target.partial_axes if wide(transfer))
            for other in members:
                lacking = placed[other][1][part] & ~have
                if wanted:
                    machine.sent += int(lacking.sum())
                result[lacking], have = placed[other][0][part][lacking], have | lacking
            assert have.all()
            new[rank] = result if wanted else np.zeros_like(result)
    machine.held = new


def wide(transfer: Transfer) -> bool:
    """Whether it goes from one grid to another: then sums begin with one summand that is everything."""
    return transfer.axes == ("world",)


ACTS = {
    "slice": _slice,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce,
    "all-reduce": _reduce,
    "all-to-all": _all_to_all,
}


@st.composite
def grids(draw: st.DrawFn, ranks: int | None = None) -> RankGrid:
    """One to three axes in any order; with ``ranks`` their product."""
    names = draw(st.permutations(("a", "b", "c")))[: draw(st.integers(1, 3))]
    if ranks is None:
        sizes = {name: draw(st.integers(1, 4)) for name in names}
    else:
        sizes, rest = {}, ranks
        for name in names[1:]:
            sizes[name] = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
            rest //= sizes[name]
        sizes[names[0]] = rest
    return RankGrid(sizes, tuple(names))


@st.composite
def layouts(draw: st.DrawFn, grid: RankGrid, dims: int) -> Layout:
    """Any placement of any axis, even and uneven, in any order."""
    placements = {}
    for axis in draw(st.permutations(tuple(grid.sizes))):
        size = grid.sizes[axis]
        sizes = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
        cuts = st.none() | sizes.map(tuple)
        shard = st.builds(Shard, st.integers(0, dims - 1), cuts)
        placements[axis] = draw(st.just(Replicate()) | st.just(Partial()) | shard | shard)
    return Layout(grid, placements)


shapes = st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple)
