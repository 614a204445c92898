"""Best-first evaluation finds the best of all, and evaluates nothing that a bound rules out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.search.serving.best_first import Incumbents, best_first
from meshwright.search.serving.candidate_table import Goal, pareto, ranked, table_of

GOAL = Goal("throughput", 1.0, given_rate=False)
FIGURES = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 9), st.integers(1, 9), st.integers(0, 20)),
    min_size=1,
    max_size=300,
)


def made(figures):
    rates, devices, latency, slack = np.array(figures, float).T
    table = table_of(
        len(figures), requests_per_s=rates, devices=devices, latency_s=latency, first=range(len(figures))
    )
    return table, rates + slack


@given(figures=FIGURES, enough=st.integers(1, 6))
def test_the_best_are_found(figures, enough):
    table, bounds = made(figures)
    seen = []

    def evaluate(rows):
        seen.extend(rows.tolist())
        return table[rows]

    found, evaluated = best_first(
        bounds, evaluate, GOAL, Incumbents(enough), lambda own: own["first"].tolist()
    )
    scores = np.sort(np.concatenate(found)["requests_per_s"])[::-1][:enough]
    assert scores.tolist() == np.sort(table["requests_per_s"])[::-1][:enough].tolist()
    assert len(seen) == len(set(seen))
    assert evaluated >= len(seen)


def test_bounds_spare_evaluations():
    rates = np.arange(10_000, 0, -1.0)
    table = table_of(len(rates), requests_per_s=rates, devices=1, first=range(len(rates)))
    found, evaluated = best_first(
        rates, lambda rows: table[rows], GOAL, Incumbents(1), lambda own: own["first"].tolist()
    )
    assert found[0]["requests_per_s"][0] == 10_000
    assert evaluated < 1000


@given(figures=FIGURES)
def test_the_front_has_every_candidate_that_none_beats(figures):
    table, _ = made(figures)
    front = pareto(table)

    def beaten(row, others):
        at_least = (
            (others["requests_per_s"] >= row["requests_per_s"])
            & (others["latency_s"] <= row["latency_s"])
            & (others["devices"] <= row["devices"])
        )
        return at_least.any()

    assert all(beaten(row, front) for row in table)
    assert all(not beaten(row, np.delete(front, at)) for at, row in enumerate(front))


def test_of_equal_candidates_fewer_devices_come_first():
    table = table_of(3, requests_per_s=[5, 5, 4], devices=[8, 4, 1], latency_s=[1, 2, 1])
    assert ranked(table, GOAL)["devices"].tolist() == [4, 8, 1]
    cost = ranked(table, Goal("cost", 2.0, given_rate=False))
    assert cost["devices"].tolist() == [1, 4, 8]
    assert ranked(table, Goal("latency", 2.0, given_rate=False))["devices"].tolist() == [1, 8, 4]
