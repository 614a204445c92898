"""Ranks of L-GreCo's dynamic program against all combinations, and against one rank for all."""

from itertools import product
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plans.synchronisation.compression import Budget, Compression
from meshwright.program.synchronisation.low_rank_ranks import (
    assumed_error,
    budget_ranks,
    factor_elements,
    factor_rank,
    low_rank_ranks,
)
from meshwright.program.synchronisation.stretch import Stretch

SHAPES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=4
).map(tuple)
UNITS = 60


def _elements(shapes, ranks):
    return sum(factor_elements(factor_rank(r, shape), shape) for shape, r in zip(shapes, ranks, strict=True))


def _error(shapes, ranks, error=assumed_error):
    return sum(error(shape, rank) for shape, rank in zip(shapes, ranks, strict=True))


def _steep_error(shape, rank):
    """Return the error of another spectrum, σ_j² in proportion to 3^−j."""
    count, rows, columns = shape
    if factor_rank(rank, shape) is None:
        return 0.0
    sides = min(rows, columns)
    return count * rows * columns * (3.0**-rank - 3.0**-sides) / (1 - 3.0**-sides)


@settings(max_examples=60)
@given(SHAPES, st.integers(1, 4), st.sampled_from([assumed_error, _steep_error]))
def test_the_program_finds_the_best_of_all_combinations(shapes, uniform, error):
    same = (uniform,) * len(shapes)
    allowed = _error(shapes, same, error)
    found = budget_ranks(shapes, uniform, error, UNITS)
    assert _elements(shapes, found) <= _elements(shapes, same)
    assert _error(shapes, found, error) <= allowed
    if not allowed:
        return
    candidates = range(ceil(uniform / 2), 2 * uniform + 1)
    units = {(shape, r): ceil(error(shape, r) * (UNITS / allowed)) for shape in shapes for r in candidates}
    legal = [
        ranks
        for ranks in product(candidates, repeat=len(shapes))
        if sum(units[shape, rank] for shape, rank in zip(shapes, ranks, strict=True)) <= UNITS
    ]
    best = min((_elements(shapes, ranks) for ranks in legal), default=_elements(shapes, same))
    assert _elements(shapes, found) == min(best, _elements(shapes, same))


def test_a_budget_saves_bytes_of_a_model():
    layer = ((1, 512, 512),) * 4 + ((1, 2048, 512), (1, 512, 2048))
    shapes = (*layer * 4, (1, 8000, 512))
    found = budget_ranks(shapes, 8)
    assert _elements(shapes, found) < _elements(shapes, (8,) * len(shapes))
    assert _error(shapes, found) <= _error(shapes, (8,) * len(shapes))


@pytest.mark.parametrize(
    ("rank", "matrices", "cut"),
    [
        (2, (1, 8, 8), 2),
        (4, (1, 8, 8), None),
        (9, (1, 4, 100), None),
        (3, (5, 4, 100), 3),
        (1, (1, 1, 9), None),
    ],
)
def test_ranks_are_cut_and_matrices_sent_whole_where_factors_are_no_smaller(rank, matrices, cut):
    assert factor_rank(rank, matrices) == cut


def test_a_rank_is_assumed_to_leave_the_tail_of_the_spectrum():
    whole = 1 + 1 / 4 + 1 / 9 + 1 / 16
    assert assumed_error((2, 4, 100), 3) == pytest.approx(2 * 400 * (1 / 16) / whole)
    assert assumed_error((2, 4, 100), 4) == 0


@pytest.mark.parametrize("written", [2, Budget(budget=2)])
def test_vectors_parts_and_other_layers_have_no_rank(written):
    stretches = (
        Stretch("a", 600, (1, 20, 30), 0),
        Stretch("part", 600, None, 1),
        Stretch("b", 600, (1, 20, 30), 1),
        Stretch("head", 600, (1, 20, 30)),
    )
    ranks = low_rank_ranks(Compression(low_rank=written, layers="1..4"), stretches)
    assert ranks == (None, None, 2, None)
