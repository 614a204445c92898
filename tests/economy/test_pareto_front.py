"""The set of points that none beats, against looking at every pair."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.cluster_ranking import dominates, non_dominated

NUMBERS = st.one_of(st.none(), st.integers(0, 4).map(float))
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=25)
KNOWN = st.lists(st.tuples(*[st.integers(0, 5).map(float)] * 3), max_size=30)


@given(KNOWN)
def test_it_is_what_looking_at_all_pairs_finds(points):
    expected = [
        i
        for i, p in enumerate(points)
        if not any(all(a <= b for a, b in zip(q, p, strict=True)) and q != p for q in points)
    ]
    assert non_dominated(points) == expected


@given(POINTS)
def test_every_point_that_is_left_out_is_beaten_by_one_that_is_not(points):
    best = non_dominated(points)
    assert best or not points
    for i, point in enumerate(points):
        assert (i in best) != any(dominates(points[j], point) for j in best)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=3))
def test_beating_is_an_order(points):
    a, b, c = points
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    assert not (dominates(a, b) and dominates(b, c)) or dominates(a, c)


def test_what_is_unknown():
    assert not dominates((1.0, None), (2.0, 5.0))
    assert not dominates((1.0, 5.0), (2.0, None))
    assert dominates((1.0, None), (2.0, None))
    assert non_dominated([(1.0, None), (2.0, 5.0), (3.0, 6.0)]) == [0, 1]
    assert non_dominated([(1.0, 1.0), (1.0, 1.0)]) == [0, 1]
