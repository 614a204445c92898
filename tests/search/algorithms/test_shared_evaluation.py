"""Searches that ask for scores: together they find what each finds alone, and an interrupt reaches all of them."""

from dataclasses import replace

import numpy as np
import pytest
from small_questions import asked
from synthetic_scores import Scored

from meshwright.search.algorithms.shared_evaluation import run_search, run_together
from meshwright.search.space.legal_plans import enumerate_space

PLANS = enumerate_space(asked("dense", 6, "meshwright", seq_len=96, batch=6).setting).plans


def evaluate(plans):
    """Scores that depend on each plan alone."""
    return Scored(plans.tp + plans.pp / 7.0, plans.dp_shard * 1.0, plans.tp > 1)


def halves(plans, parts):
    """A search that asks for the plans in parts, and ends early where it is interrupted."""
    seconds = []
    for rows in np.array_split(np.arange(len(plans)), parts):
        try:
            scores = yield plans.take(rows)
        except KeyboardInterrupt:
            return "interrupted", len(seconds)
        assert len(scores.fits) == len(scores.total_bytes) == len(rows)
        seconds += scores.step_s.tolist()
    return seconds


def test_together_they_find_what_each_finds_alone():
    sizes = [(PLANS.take(np.arange(at, len(PLANS))), parts) for at, parts in ((0, 3), (5, 1), (2, 4))]
    calls = []

    def counted(plans):
        calls.append((len(plans), plans.several_sizes))
        return evaluate(plans)

    together = run_together([halves(*size) for size in sizes], counted)
    assert together == [run_search(halves(*size), evaluate) for size in sizes]
    assert [several for _, several in calls] == [True, True, True, False]
    assert sum(count for count, _ in calls) == sum(len(plans) for plans, _ in sizes)


def test_a_search_that_asks_for_nothing_has_its_result():
    def nothing():
        return "at once"
        yield

    assert run_search(nothing(), evaluate) == "at once"
    assert run_together([nothing(), halves(PLANS, 2)], evaluate)[0] == "at once"
    assert run_together([], evaluate) == []


def test_an_interrupt_reaches_every_search():
    calls = []

    def interrupted(plans):
        calls.append(plans)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return evaluate(plans)

    found = run_together([halves(PLANS, 2), halves(PLANS, 3)], interrupted)
    assert [word for word, _ in found] == ["interrupted", "interrupted"]
    assert all(count > 0 for _, count in found)


def test_plans_of_other_tables_of_names_are_refused():
    other = replace(PLANS, values=dict(PLANS.values) | {"recompute": ("none",)})
    with pytest.raises(AssertionError):
        run_together([halves(PLANS, 1), halves(other, 1)], evaluate)
