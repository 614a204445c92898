"""The number of spare nodes with the least dollars, against trying them all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.spare_nodes import WORTH_A_NODE, best_spare_nodes, stopped_share

LOADS = st.floats(1e-6, 20.0)


def relative_time(load, spares):
    return 1 / (1 - stopped_share(1.0, load, spares))


@given(load=LOADS, nodes=st.integers(1, 300), per_node=st.sampled_from([1, 4, 8, 72]))
def test_no_other_number_costs_less(load, nodes, per_node):
    best = best_spare_nodes(1.0, load, nodes * per_node, per_node, priced=True)
    usd = [(nodes + spares) * relative_time(load, spares) for spares in range(120)]
    assert usd[best] == pytest.approx(min(usd), rel=1e-12)


@given(load=LOADS)
def test_without_a_price_one_more_saves_next_to_nothing(load):
    best = best_spare_nodes(1.0, load, 64, 8, priced=False)
    savings = [1 - relative_time(load, s + 1) / relative_time(load, s) for s in range(best + 1)]
    assert savings[-1] < WORTH_A_NODE
    assert all(saved >= WORTH_A_NODE for saved in savings[:-1])


def test_nothing_fails_and_nothing_stands_by():
    assert best_spare_nodes(float("inf"), 3600.0, 64, 8, priced=True) == 0
    assert best_spare_nodes(float("inf"), 3600.0, 64, 8, priced=False) == 0
