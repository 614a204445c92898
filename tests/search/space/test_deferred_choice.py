import numpy as np

from meshwright.search.space.deferred_choice import DeferredChoice

LEGAL = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=bool)
LATER = DeferredChoice("context", LEGAL, np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=bool))


def test_values_are_counted():
    assert LATER.counts.tolist() == [2, 2, 1]


def test_plans_get_every_value_where_none_is_chosen_yet():
    places, codes = LATER.of(np.array([1, 0, 2, 1]), np.array([True, True, True, False]))
    assert places.tolist() == [0, 0, 1, 1, 2, 3]
    assert codes.tolist() == [0, 2, 0, 1, 2, 0]


def test_codes_can_be_left_out_everywhere_or_by_base_plan():
    assert LATER.among(np.array([False, True, True])).legal.sum(0).tolist() == [1, 1, 1]
    alone = LATER.among(np.eye(3, dtype=bool))
    assert alone.legal.sum(0).tolist() == [1, 0, 1]
    assert not alone.slower.any()


def test_some_base_plans_keep_their_values():
    taken = LATER.take(np.array([2, 0]))
    assert taken.legal.tolist() == LEGAL[:, [2, 0]].tolist()
    assert taken.slower.tolist() == LATER.slower[:, [2, 0]].tolist()


def test_settled_plans_have_the_value_that_they_have():
    settled = DeferredChoice.settled("context", np.array([2, 0]), 3)
    assert settled.legal.tolist() == [[False, True], [False, False], [True, False]]
    assert not settled.slower.any()
