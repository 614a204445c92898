"""Limits that hold with a probability, the best of each family, and the most tokens within limits."""

from functools import cache

import numpy as np
import pytest
from cluster_questions import MODEL, chosen, one_by_one

from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_ranking import best_of_families, ranked
from meshwright.economy.cluster_row import COLUMNS
from meshwright.economy.objectives import OBJECTIVES
from meshwright.errors import InfeasibleError, InputError
from meshwright.present.plan_answers.cluster_table import csv_table, markdown_table

MIXED = ("h100-sxm-80gb x <=24", "a100-sxm-80gb x <=16")
COST = OBJECTIVES["cost"]


@cache
def value_of(cluster, name="days"):
    """A predicted figure of one cluster's recommended plan."""
    return next(getattr(one.costs, name) for one in one_by_one(MIXED) if one.offer.on == cluster)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sure", [0.2, 0.9])
def test_the_best_that_holds_with_a_probability_is_that_of_all(sure):
    days, usd = value_of("a100-sxm-80gb x 8"), value_of("a100-sxm-80gb x 8", "usd")
    limits = Limits(3 * usd, days, sure=sure)
    found = chosen(*MIXED, objective="cost", budget=3 * usd, deadline=days, sure=sure)
    every = one_by_one(MIXED, limits=limits)
    assert found.proposals[0].plan.cluster == ranked(every, COST, limits)[0].offer.on
    first = next(s for s in found.standings if s.offer.on == found.proposals[0].plan.cluster)
    assert first.sure(limits) >= sure


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sure", [None, 0.9])
def test_each_family_has_its_best_or_its_nearest(sure):
    days = value_of("h100-sxm-80gb x 24")
    limits = Limits(deadline_days=1.5 * days, sure=sure)
    found = chosen(*MIXED, objective="cost", deadline=1.5 * days, sure=sure)
    every = one_by_one(MIXED, limits=limits)
    expected = [one.offer.on for one in best_of_families(every, COST, limits)]
    rows = found.to_json()["families"]
    assert [row["cluster"] for row in rows] == expected
    assert [row["meets"] for row in rows] == [True, False]
    assert rows[0]["misses"] == {"days": 0.0, "usd": None, "kw": None}
    assert rows[1]["misses"]["days"] > 0


def test_an_interval_that_passes_a_limit_is_in_the_answer():
    days = 1.02 * value_of("h100-sxm-80gb x 4")
    found = chosen("h100-sxm-80gb x <=24", objective="cost", deadline=days)
    first = next(s for s in found.standings if s.offer.on == found.proposals[0].plan.cluster)
    missed = first.draws.missed(Limits(deadline_days=days))["deadline"]
    assert missed > 0.1
    assert found.doubt.startswith(f"misses the deadline in {missed:.0%} of cases; ")
    assert chosen("h100-sxm-80gb x <=24", objective="cost", deadline=10 * days).doubt is None


def test_power_is_a_limit_of_the_site():
    one, two = (value_of(f"h100-sxm-80gb x {count}", "power_kw") for count in (8, 16))
    assert two == pytest.approx(2 * one)
    found = chosen(*MIXED, objective="time", power=1.01 * one)
    assert found.proposals[0].plan.cluster == "h100-sxm-80gb x 8"
    with pytest.raises(InputError) as caught:
        chosen("mi300x x 8", power=100.0)
    assert "power_kw_per_node" in caught.value.problems[0].suggestion
    assert chosen("mi300x x 8", power=100.0, assume=("mi300x:power_kw_per_node=10",)).proposals


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sure", [None, 0.9])
def test_the_most_tokens_are_a_step_away_from_too_many(sure):
    found = chosen(*MIXED, tokens="max", deadline=2.0, budget=2000.0, sure=sure)
    limits = Limits(2000.0, 2.0, sure=sure)
    tokens = [s.course.terms.tokens for s in found.standings if s.state == "searched"]
    assert found.tokens == max(tokens) == found.proposals[0].report.training["tokens"]
    for standing in (s for s in found.standings if s.state == "searched" and s.holds(limits)):
        more = standing.course.with_steps(standing.course.steps + 1)
        kept = (
            limits.met(more.costs(standing.step_s))
            if sure is None
            else standing.draws.of(more).sure(limits) >= sure
        )
        assert not kept
    assert all(row["tokens"] for row in found.to_json()["families"])


def test_questions_that_make_no_sense():
    for options, field in (
        ({"sure": 1.0}, "sure"),
        ({"sure": 0.0}, "sure"),
        ({"power": -1.0}, "power"),
        ({"tokens": "max"}, "tokens"),
        ({"assume": ("b200:restart_s=1",)}, "assume"),
    ):
        with pytest.raises(InputError) as caught:
            chosen(*MIXED, **options)
        assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("limits", [{"deadline": 0.1}, {"budget": 100.0, "deadline": 0.1}])
def test_what_is_suggested_would_do(limits):
    with pytest.raises(InfeasibleError, match="with a probability of 90%") as caught:
        chosen(*MIXED, sure=0.9, **limits)
    for one in caught.value.suggestion.split(" or "):
        words = one.split(" would do")[0].split()
        others = {
            name.removeprefix("--"): float(number)
            for name, number in zip(words[::2], words[1::2], strict=True)
        }
        assert chosen(*MIXED, sure=0.9, **limits | others).proposals


def test_tables_have_a_row_for_each_cluster():
    rows = chosen(*MIXED, objective="cost").to_json()["clusters"]
    lines = csv_table(rows).splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == len(rows) + 1
    assert all(line.startswith(MODEL) for line in lines[1:])
    marked = markdown_table(rows).splitlines()
    assert len(marked) == len(rows) + 2
    assert {line.count("|") for line in marked} == {len(COLUMNS) + 1}
    searched = [row for row in rows if row["state"] == "searched"]
    assert all(
        np.isfinite(row["days_high"]) and row["days_low"] < row["days"] < row["days_high"] for row in searched
    )
    assert all(row["days_low"] is None for row in rows if row["state"] != "searched")
