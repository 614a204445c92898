"""Ranks of the factors of ``low_rank``, the same for all tensors or by L-GreCo's dynamic program (arXiv 2210.17357).

``low_rank: {budget: r}`` gives each tensor a rank from ⌈r/2⌉ to 2r, such that all tensors together need the fewest
bytes and their summed squared error is at most that of rank r for all. With errors in whole units, rounded up, of the
allowed sum's 1/10,000th, the program finds the fewest bytes of the first l tensors for each number of units spent.
Rounding up may leave out uniform ranks; they are taken where the program finds nothing smaller.

A matrix whose factors would be no smaller than itself is sent whole, without an error.

Assumed: the squared error of rank r is that of singular values in proportion to 1/j, of a matrix whose elements have
equal variance: n·m·Σ_{j>r} j⁻² / Σ_j j⁻². The paper measures errors on gradients in training; here bytes must be known
before a run, so they depend on shapes alone.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.synchronisation.compression import Budget, Compression
from meshwright.program.synchronisation.stretch import Stretch

UNITS = 10_000
Matrices = tuple[int, int, int]
ErrorTable = Callable[[Matrices, int], float]
"""The squared error of a tensor, (count, rows, columns), by the rank of its factors."""


def factor_rank(rank: int, matrices: Matrices) -> int | None:
    """Return the rank cut to the shorter side; None if the matrix is sent whole."""
    _, rows, columns = matrices
    rank = min(rank, rows, columns)
    return rank if rank * (rows + columns) < rows * columns else None


def factor_elements(rank: int | None, matrices: Matrices) -> int:
    """Return the number of elements of the factors, or of the matrices that are sent whole."""
    count, rows, columns = matrices
    return count * (rows * columns if rank is None else rank * (rows + columns))


def assumed_error(matrices: Matrices, rank: int) -> float:
    """Return the assumed squared error of a tensor at a rank, as the module's text has it."""
    count, rows, columns = matrices
    if factor_rank(rank, matrices) is None:
        return 0.0
    return count * rows * columns * _tail(rank, min(rows, columns))


@cache
def _tail(rank: int, sides: int) -> float:
    squares = 1.0 / np.arange(1, sides + 1, dtype=np.float64) ** 2
    return float(squares[rank:].sum() / squares.sum())


def low_rank_ranks(compression: Compression, stretches: Sequence[Stretch]) -> tuple[int | None, ...]:
    """Return the rank of each stretch of one exchange; None of a stretch that is sent whole."""
    encoded = [number for number, one in enumerate(stretches) if _may_be_encoded(compression, one)]
    shapes = tuple(one.matrices for one in (stretches[number] for number in encoded) if one.matrices)
    written = compression.low_rank
    assert written is not None
    uniform = int(written.budget if isinstance(written, Budget) else written)
    ranks = budget_ranks(shapes, uniform) if isinstance(written, Budget) else (uniform,) * len(shapes)
    result: list[int | None] = [None] * len(stretches)
    for number, rank, matrices in zip(encoded, ranks, shapes, strict=True):
        result[number] = factor_rank(rank, matrices)
    return tuple(result)


def _may_be_encoded(compression: Compression, stretch: Stretch) -> bool:
    layers = compression.layer_range
    return bool(stretch.matrices and stretch.elements) and (layers is None or stretch.layer in layers)


@lru_cache(maxsize=64)
def budget_ranks(
    shapes: tuple[Matrices, ...], uniform: int, error: ErrorTable = assumed_error, units: int = UNITS
) -> tuple[int, ...]:
    """Return the rank of each tensor: the fewest elements with at most the error of ``uniform`` ranks."""
    if not shapes:
        return ()
    allowed = sum(error(shape, uniform) for shape in shapes)
    same = (uniform,) * len(shapes)
    if not allowed:
        return same  # every tensor is sent whole, or is exact
    candidates = range(-(-uniform // 2), 2 * uniform + 1)
    elements = np.array(
        [[_elements(shape, rank) for rank in candidates] for shape in shapes], dtype=np.float64
    )
    errors = np.array([[error(shape, rank) for rank in candidates] for shape in shapes])
    spent = np.ceil(errors * (units / allowed)).astype(np.int64)
    found = _fewest_elements(elements, spent, units)
    if found is None or sum(elements[range(len(shapes)), found]) >= _sum_of(shapes, same):
        return same
    return tuple(candidates[place] for place in found)


def _elements(shape: Matrices, rank: int) -> int:
    return factor_elements(factor_rank(rank, shape), shape)


def _sum_of(shapes: tuple[Matrices, ...], ranks: tuple[int, ...]) -> int:
    return sum(map(_elements, shapes, ranks))


def _fewest_elements(elements: NDArray[np.float64], spent: NDArray[np.int64], units: int) -> list[int] | None:
    """Return the candidate of each tensor; None if no choice stays within the units.

    ``fewest[e]`` is the least number of elements of the tensors so far with at most e units spent.
    """
    fewest = np.zeros(units + 1)
    choices: list[NDArray[np.int64]] = []
    for sizes, costs in zip(elements, spent, strict=True):
        options = np.full((len(sizes), units + 1), np.inf)
        for place, (size, cost) in enumerate(zip(sizes, costs, strict=True)):
            if cost <= units:
                options[place, cost:] = fewest[: units + 1 - cost] + size
        chosen = options.argmin(axis=0)
        choices.append(chosen)
        fewest = options[chosen, np.arange(units + 1)]
    if not np.isfinite(fewest[units]):
        return None
    left = units
    found: list[int] = []
    for chosen, costs in zip(reversed(choices), reversed(list(spent)), strict=True):
        found.append(int(chosen[left]))
        left -= int(costs[found[-1]])
    return found[::-1]
