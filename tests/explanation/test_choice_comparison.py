"""All values of one choice of a plan."""

import pytest
from explained_cases import resolved, subject

from meshwright.errors import InputError
from meshwright.explanation.choice_comparison import NAMES, compare_values
from meshwright.explanation.explanation_result import SEARCHED
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.verbs.predict.predict_plan import predicted

LONG = {"layout": {"dp_shard": 2, "cp": 4}}


def _values(found):
    return {one["value"]: one for one in found.to_json()["each"]["values"]}


def test_every_form_of_context_parallelism_is_priced_or_refused_with_the_rule():
    values = _values(compare_values(resolved(**LONG), "context"))
    assert {*CONTEXT_FORMS, "ring+ulysses2"} <= {*values}
    assert values["ring"]["own"]
    assert [value for value, one in values.items() if one["own"]] == ["ring"]
    assert "megatron-core" in values["rsa"]["rule"]
    assert values["ring+ulysses2"]["changes"] == {"context": ["ring", "ring+ulysses2"]}


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("context", "all-gather", {"layout": {"dp_shard": 2, "cp": 4, "context": "all-gather"}}),
        ("recompute", "full", {**LONG, "recompute": "full"}),
        ("tp", "2", {"layout": {"dp_shard": 1, "cp": 4, "tp": 2}}),
        ("sharding", "none", {"layout": {"dp_replicate": 2, "cp": 4}, "sharding": "none"}),
        ("micro_batch", "4", {**LONG, "pipeline": {"micro_batch": 4}}),
    ],
)
def test_a_value_costs_what_predict_says_of_the_plan_that_has_it(name, value, changes):
    one = _values(compare_values(resolved(**LONG), name))[value]
    expected = predicted(resolved(**changes))
    assert one["step_time_s"] == pytest.approx(expected.step_time_s)
    assert one["memory_bytes"] == pytest.approx(expected.memory_bytes["total"])


def test_plans_that_fit_come_first_by_time_and_what_is_refused_last():
    found = compare_values(resolved(**LONG), "micro_batch").values
    kinds = [(isinstance(one.found, str), not one.fits, one.step_s or 0.0) for one in found]
    assert kinds == sorted(kinds)
    assert found[0].fits


def test_the_summary_names_the_quickest_value_that_fits():
    found = compare_values(resolved(**LONG, recompute="full"), "recompute")
    (sentence,) = found.summary
    best = found.values[0]
    assert sentence.startswith(f"recompute {best.value} is the quickest of the values that fit")
    assert best.step_s < subject(**LONG, recompute="full").forecast.step_s


def test_degrees_that_leave_no_whole_data_parallelism_name_the_rule():
    values = _values(compare_values(resolved(layout={"dp_shard": 1, "cp": 4, "pp": 2}), "tp"))
    assert "is not whole" in values["2"]["rule"]


@pytest.mark.parametrize(
    ("name", "rule"),
    [("contxt", "is no choice"), ("sequence_parallel", "no effect on a plan with pp 1, cp 4, tp 1")],
)
def test_a_choice_that_is_unknown_or_without_effect_is_refused(name, rule):
    with pytest.raises(InputError) as caught:
        compare_values(resolved(**LONG), name)
    (problem,) = caught.value.problems
    assert problem.field == "each"
    assert rule in problem.rule


def test_nothing_is_searched_and_the_keys_say_so():
    data = compare_values(resolved(**LONG), "cp").to_json()
    assert all(data[key] is None for key in SEARCHED)
    assert all("--each" in data["origin"][key] for key in SEARCHED)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"context"}))
def test_the_plan_itself_is_among_the_values_of_every_choice(name):
    found = compare_values(resolved(layout={"dp_shard": 2, "pp": 2, "tp": 2}), name)
    assert sum(one.own for one in found.values) == 1
