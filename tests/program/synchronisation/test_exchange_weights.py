"""Weights in exchanges between islands: shares of labels, so that ranks that were equal stay equal."""

from dataclasses import replace

import pytest
from island_plans import CUTS, TWO, parameters

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.exchange_weights import exchange_weights, joined_axes

LABELS = [[1, 5], [3, 11]]
"""By (dp_replicate, dp_shard)."""


def test_a_member_counts_its_own_labels_where_the_other_axis_is_loose():
    assert exchange_weights(LABELS, "dp_replicate", (0, 0), (), equal=False) == [1 / 4, 3 / 4]
    assert exchange_weights(LABELS, "dp_replicate", (1, 1), (), equal=False) == [5 / 16, 11 / 16]
    assert exchange_weights(LABELS, "dp_shard", (1, 0), (), equal=False) == [3 / 14, 11 / 14]


def test_a_member_counts_the_labels_of_all_ranks_that_are_equal_to_it():
    for column in (0, 1):
        of = exchange_weights(LABELS, "dp_replicate", (0, column), ("dp_shard",), equal=False)
        assert of == [6 / 20, 14 / 20]
    for row in (0, 1):
        of = exchange_weights(LABELS, "dp_shard", (row, 0), ("dp_replicate", "dp_shard"), equal=False)
        assert of == [4 / 20, 16 / 20]


def test_two_exchanges_give_the_mean_over_all_labels():
    """Shards first, whose ranks are then equal, so that replicas count all labels of a row."""
    values = [[2.0, 4.0], [8.0, 16.0]]
    rows = []
    for row in (0, 1):
        weights = exchange_weights(LABELS, "dp_shard", (row, 0), (), equal=False)
        rows.append(sum(w * v for w, v in zip(weights, values[row], strict=True)))
    weights = exchange_weights(LABELS, "dp_replicate", (0, 0), ("dp_shard",), equal=False)
    found = sum(w * v for w, v in zip(weights, rows, strict=True))
    assert found == pytest.approx((1 * 2 + 5 * 4 + 3 * 8 + 11 * 16) / 20, rel=1e-15)


@pytest.mark.parametrize("axis", ["dp_replicate", "dp_shard"])
def test_all_weigh_the_same_on_request_and_without_labels(axis):
    assert exchange_weights(LABELS, axis, (0, 0), (), equal=True) == [1 / 2, 1 / 2]
    assert exchange_weights([[0, 0], [0, 0]], axis, (1, 1), (), equal=False) == [1 / 2, 1 / 2]


def two_loose(*entries):
    """The Program of a plan with two loose axes."""
    read = tuple(map(Synchronisation.model_validate, entries))
    return replace(CUTS[TWO], synchronise=read).lowered()[0]


def over_shards(**keys):
    """An entry of the second axis."""
    return parameters(**{"over": "dp_shard", "every": 4, **keys})


def test_exact_axes_join_ranks_always_and_loose_ones_when_they_have_been_exchanged():
    program = replace(CUTS["zero1"], synchronise=(Synchronisation.model_validate(parameters(every=2)),))
    assert joined_axes(program.lowered()[0], 0, 0, ()) == {"dp_shard"}
    two = two_loose(parameters(every=2), over_shards())
    assert joined_axes(two, 1, 0, ()) == frozenset()
    assert joined_axes(two, 1, 0, {(0, 0)}) == {"dp_replicate"}
    assert joined_axes(two, 0, 0, {(1, 0)}) == {"dp_shard"}


def test_every_layer_of_a_fragment_must_have_been_replaced():
    two = two_loose(parameters(every=2, fragments=2), over_shards())
    assert joined_axes(two, 1, 0, {(0, 0)}) == frozenset()
    assert joined_axes(two, 1, 0, {(0, 0), (0, 1)}) == {"dp_replicate"}
    assert joined_axes(two, 0, 1, {(1, 0)}) == {"dp_shard"}


@pytest.mark.parametrize("keys", [{"merge": 0.5}, {"delay": 2, "own": "fresh"}])
def test_what_keeps_own_values_joins_nothing(keys):
    two = two_loose(parameters(every=2, **keys), over_shards())
    assert joined_axes(two, 1, 0, {(0, 0)}) == frozenset()


def test_moments_are_joined_by_exchanges_of_moments():
    both = {"state": "optimizer", "over": "dp_replicate", "every": 2}
    first = {"state": "first_moment", "over": "dp_shard", "every": 4}
    two = two_loose(parameters(every=2), over_shards(), both, first)
    assert joined_axes(two, 3, 0, {(0, 0)}) == frozenset()
    assert joined_axes(two, 3, 0, {(2, 0)}) == {"dp_replicate"}
    assert joined_axes(two, 2, 0, {(3, 0)}) == frozenset()
