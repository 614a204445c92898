"""Neighbours: one step each, legal, predicted as ``predict`` does."""

import pytest
from explained_cases import every_case, explained_plain, explained_too_large, in_full, plan

from meshwright.explanation.one_step_alternatives import choices
from meshwright.explanation.plan_difference import ExplainedPlan
from meshwright.plans.layers.recompute_by_layer import layer_recomputes, with_layer_recomputes
from meshwright.plans.layers.uneven_partition import stages_in_words
from meshwright.plans.resolve import resolve
from meshwright.units import format_bytes
from meshwright.verbs.predict.predict_plan import predicted


def test_every_neighbour_is_predicted_as_by_itself():
    for other in explained_plain().choices:
        report = predicted(resolve(other.plan))
        assert other.forecast.step_s == pytest.approx(report.step_time_s)
        assert other.forecast.total_bytes == pytest.approx(report.memory_bytes["total"])
        assert other.forecast.fits == report.fits


def test_every_axis_and_choice_is_stepped():
    changed = {name for other in explained_plain().choices for name in other.changes}
    assert {"tp", "cp", "pp", "dp_shard", "micro_batch", "sharding", "recompute"} <= changed
    assert {"sequence_parallel", "dp_replicate", "stages"} <= changed


@pytest.mark.slow
def test_neighbours_differ_from_the_plan_and_from_each_other():
    for explained in every_case():
        plans = [other.plan for other in explained.choices]
        assert all(other.changes for other in explained.choices)
        assert not [plan for at, plan in enumerate(plans) if plan in plans[:at]]


def test_those_that_fit_come_first_the_quickest_before():
    for explained in every_case():
        order = [(not one.forecast.fits, one.forecast.step_s) for one in explained.choices]
        assert order == sorted(order)


def test_words_name_the_change_the_time_and_where_it_is_lost():
    (full,) = [one for one in explained_plain().choices if one.changes == {"recompute": ("none", "full")}]
    assert full.text.startswith("recompute none → full: ")
    assert "slower" in full.text
    assert "ms compute" in full.text
    assert "GiB in place of" in full.text


def test_what_does_not_fit_says_how_much_it_needs():
    large = [one for one in explained_too_large().choices if not one.forecast.fits]
    assert large
    for one in large:
        assert f"does not fit: {format_bytes(one.forecast.total_bytes)} of " in one.text


def test_a_plan_in_full_has_neighbours_inside_its_stages():
    full = in_full(sharding="zero3", gather="per-layer", stack="meshwright")
    found = choices(ExplainedPlan.of(full))
    assert {next(iter(other.changes)) for other in found} >= {"tp", "micro_batch"}
    assert all("pp" not in other.changes for other in found)


def test_stages_are_told_as_runs():
    assert stages_in_words("balanced") == "balanced"
    assert stages_in_words((("embed", "0..2"), ("3..6",), ("7..10",), ("11", "head"))) == "3 4×2 1"


def test_what_each_layer_recomputes_is_kept_by_every_step_but_that_of_recomputation():
    short = plan(stack="meshwright")
    mixed = with_layer_recomputes(resolve(short).long, ("full",) * 8 + ("none",) * 24)
    found = ExplainedPlan.of(resolve(mixed))
    assert found.short is not None
    kept = [one for one in choices(found) if "recompute" not in one.changes]
    assert kept
    for other in kept:
        assert layer_recomputes(other.resolved.long, 32) == found.recomputes
    (all_of_them,) = [
        one for one in choices(found) if "stages" not in one.changes and "recompute" in one.changes
    ][:1]
    assert all_of_them.changes_in_words.startswith("recompute full in layers 0..7, none in layers 8..31 → ")
