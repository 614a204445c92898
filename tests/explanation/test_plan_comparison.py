"""Two plans against each other."""

import pytest
from explained_cases import plan, resolved, subject

from meshwright.errors import InputError
from meshwright.explanation.explanation_result import SEARCHED
from meshwright.explanation.plan_comparison import compare_plans
from meshwright.explanation.plan_recommendation import is_recommended, recommended
from meshwright.explanation.sensitivity import seconds_at
from meshwright.plans.forms.short import WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer

WIDE = {"layout": {"dp_shard": 4, "tp": 2}}


@pytest.fixture(scope="module")
def found():
    return compare_plans(resolved(), resolved(**WIDE), "other.yaml")


def test_parts_sum_to_the_difference_of_steps_and_of_peaks(found):
    data = found.to_json()
    other, own = data["against"], data["predict"]
    assert sum(other["difference_s"].values()) == pytest.approx(other["step_time_s"] - own["step_time_s"])
    memory = other["memory_bytes"] - own["memory_bytes"]["total"]
    assert sum(other["difference_bytes"].values()) == pytest.approx(memory)


def test_the_other_way_round_every_difference_has_the_other_sign(found):
    back = compare_plans(resolved(**WIDE), resolved(), "own.yaml").to_json()["against"]
    data = found.to_json()["against"]
    assert back["difference_s"] == pytest.approx({n: -s for n, s in data["difference_s"].items()})
    assert back["changes"] == {name: [b, a] for name, (a, b) in data["changes"].items()}
    assert back["ratio"] == pytest.approx(1 / data["ratio"])
    assert back["tie"] == data["tie"]


def test_choices_are_those_that_differ(found):
    assert found.to_json()["against"]["changes"] == {"pp": [2, 1], "dp_shard": [2, 4]}


def test_lines_have_the_largest_difference_first_time_before_memory(found):
    parts = found.to_json()["against"]["difference_s"]
    told = [line.partition(":")[0].split()[0] for line in found.lines]
    assert told[: len(parts)][0] == next(iter(parts))


def test_nothing_is_searched_and_the_keys_say_so(found):
    data = found.to_json()
    assert all(data[key] is None for key in SEARCHED)
    assert all(data["origin"][key].startswith("null: ") for key in SEARCHED)


def test_the_order_turns_where_it_is_said_to():
    rings, wide = {"layout": {"pp": 2, "cp": 2, "dp_shard": 2}}, {"layout": {"dp_shard": 4, "tp": 2}}
    found = compare_plans(resolved(**rings), resolved(**wide), "other.yaml")
    ours, theirs = subject(**rings), subject(**wide)
    now = ours.forecast.step_s <= theirs.forecast.step_s
    assert len(found.turns) >= 2
    for one in found.turns:
        for factor, same in ((one.bracket.new, False), (1 + 0.99 * (one.bracket.new - 1), True)):
            assert ("this plan becomes" in one.text) == (not now)
            order = seconds_at(ours, one.resource, factor) <= seconds_at(theirs, one.resource, factor)
            assert (order == now) == same


def test_a_plan_against_itself_is_the_same():
    same = compare_plans(resolved(), resolved(), "again.yaml")
    assert same.to_json()["against"]["difference_s"] == {}
    assert same.lines == []
    assert same.turns == ()
    assert "the same plan" in same.summary[0]


def test_on_another_cluster_a_tie_is_where_the_intervals_overlap():
    twice = {"cluster": "h100-sxm-80gb x 16", "layout": {"pp": 2, "dp_shard": 4, "tp": 2}}
    other = compare_plans(resolved(), resolved(**twice), "other.yaml")
    assert not other.tie
    assert other.turns == ()
    assert other.to_json()["against"]["changes"]["cluster"] == ["h100-sxm-80gb x 8", "h100-sxm-80gb x 16"]
    same_speed = compare_plans(resolved(), resolved(stack="torchtitan", sharding="zero3", **WIDE), "o.yaml")
    own, its = same_speed.own.report, same_speed.other.report
    overlap = max(own.step_time_low_s, its.step_time_low_s) <= min(own.step_time_high_s, its.step_time_high_s)
    assert same_speed.tie == overlap


def test_another_model_or_another_step_is_refused_with_all_that_is_wrong():
    other = plan(model="llama-3.2-1b", workload=WorkloadSpec(seq_len=2048, global_batch=64))
    with pytest.raises(InputError) as caught:
        compare_plans(resolved(), resolve(other), "other.yaml")
    problems = caught.value.problems
    assert [problem.field for problem in problems] == ["against"] * 3
    assert {problem.value for problem in problems} == {"other.yaml"}
    assert "llama-3.2-1b" in problems[0].rule
    assert [problem.suggestion for problem in problems[1:]] == [
        "workload.seq_len: 4096 in both plans",
        "workload.global_batch: 32 in both plans",
    ]


def test_the_other_plan_can_be_the_recommended_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_recommended("recommended")
    other = recommended(resolved())
    asked = PlanRequest(subject().header, top=1)
    assert other.short.layout == answer(asked, resolved().setting).proposals[0].plan.layout
    (tmp_path / "recommended").write_text("plan: 1\n", encoding="utf-8")
    assert not is_recommended("recommended")
