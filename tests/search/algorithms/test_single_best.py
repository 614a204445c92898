"""The best plan alone, against ranking all plans by their scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from synthetic_scores import Scored

from meshwright.search.algorithms.exhaustive import TIE, ranked
from meshwright.search.algorithms.single_best import FIRST, best_below


def scores(seed, count):
    """(floors, scores): many plans that nearly tie, many that do not fit, bounds at any distance below."""
    draw = np.random.default_rng(seed)
    step_s = np.round(1 + draw.integers(0, 40, count) * 0.0004 + draw.integers(0, 3, count), 6)
    found = Scored(step_s, draw.integers(1, 9, count).astype(float), draw.random(count) < draw.random())
    floors = np.where(found.fits | (draw.random(count) < 0.5), step_s * draw.uniform(0.5, 1, count), np.inf)
    return floors, found


def searched(floors, found, enough=np.inf):
    """What is found, and how many plans were evaluated."""
    seen = []

    def evaluate(rows):
        seen.extend(rows)
        return Scored(found.step_s[rows], found.total_bytes[rows], found.fits[rows])

    best = best_below(floors, lambda rows: rows, evaluate, enough)
    assert len(set(seen)) == len(seen)
    return best, len(seen)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 3000))
def test_it_is_the_first_of_the_ranking(seed, count):
    floors, found = scores(seed, count)
    order = ranked(found.step_s, found.total_bytes, found.fits)
    best, _ = searched(floors, found)
    if not len(order):
        assert best is None
        return
    (row,) = best.plans
    assert found.fits[row]
    assert best.step_s == found.step_s[row] <= found.step_s[order].min() * (1 + TIE)
    assert found.total_bytes[row] == found.total_bytes[order[0]]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 2000))
def test_a_bound_may_stand_for_several_plans(seed, count):
    floors, found = scores(seed, 2 * count)
    least = np.minimum(floors[0::2], floors[1::2])

    def take(rows):
        return np.stack([2 * rows, 2 * rows + 1], 1).reshape(-1)

    def evaluate(rows):
        return Scored(found.step_s[rows], found.total_bytes[rows], found.fits[rows])

    best, one_by_one = best_below(least, take, evaluate), searched(floors, found)[0]
    assert (best is None) == (one_by_one is None)
    if best is not None:
        (row,) = best.plans
        assert found.fits[row]
        assert best.step_s == found.step_s[row]
        assert found.total_bytes[row] == found.total_bytes[int(one_by_one.plans[0])]


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3000), part=st.floats(0.5, 3.0))
def test_what_takes_enough_is_none(seed, count, part):
    floors, found = scores(seed, count)
    least = found.step_s[found.fits].min(initial=np.inf)
    enough = part * 1.5
    best, evaluated = searched(floors, found, enough)
    assert (best is not None) == (least < enough)
    assert evaluated <= np.isfinite(floors).sum()
    if least >= enough:
        assert evaluated <= (floors <= enough).sum()


def test_few_plans_are_evaluated_where_bounds_are_close():
    floors = np.linspace(1, 100, 10**5)
    found = Scored(floors, np.ones(10**5), np.ones(10**5, dtype=bool))
    best, evaluated = searched(floors, found)
    assert best.step_s == 1.0
    assert evaluated <= FIRST
