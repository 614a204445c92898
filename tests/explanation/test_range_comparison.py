"""Two plans by range of layers: where ranges end, what each plan has there, and where nothing is to be shown."""

from dataclasses import replace

import pytest
from explained_cases import resolved
from range_cases import LAYERS, of_two_layouts, recomputing

from meshwright import api
from meshwright.explanation.costs_by_block import block_costs
from meshwright.explanation.plan_comparison import compare_plans
from meshwright.explanation.range_comparison import compare_ranges
from meshwright.plans.files.plan_file import dump_plan

THIRD = ("full",) * 10 + ("none",) * 22


@pytest.fixture(scope="module")
def found():
    return compare_ranges(of_two_layouts(), recomputing(THIRD))


def test_plans_of_equal_layers_have_no_ranges():
    assert compare_ranges(resolved(), resolved(layout={"dp_shard": 4, "tp": 2})) is None


def test_ranges_end_where_either_plan_changes(found):
    assert [row["blocks"] for row in found["rows"]] == ["embed", "0..9", "10..19", "20..31", "head"]
    assert sum(row["layers"] for row in found["rows"]) == LAYERS
    choices = [(row["a"]["layout"], row["a"]["recompute"], row["b"]["recompute"]) for row in found["rows"]]
    assert choices == [
        ("wide", "none", "none"),
        ("wide", "none", "full"),
        ("wide", "none", "none"),
        ("narrow", "full", "none"),
        ("narrow", "none", "none"),
    ]
    assert found["rows"][3]["a"]["degrees"] == "dp_shard 4 zero3"
    assert {row["b"]["degrees"] for row in found["rows"]} == {"dp_shard 2 tp 2 zero1"}


def test_ranges_sum_to_the_blocks_of_each_plan(found):
    for side, plan in (("a", of_two_layouts()), ("b", recomputing(THIRD))):
        costs = block_costs(plan.long, plan.setting)
        for key in ("passes_s", "states_bytes", "activations_bytes"):
            assert sum(row[side][key] for row in found["rows"]) == pytest.approx(sum(getattr(costs, key)))
        assert found["between_s"][side] == costs.between_s


def test_the_other_way_round_the_sides_change_places(found):
    back = compare_ranges(recomputing(THIRD), of_two_layouts())
    assert [row["a"] for row in back["rows"]] == [row["b"] for row in found["rows"]]
    assert back["plans"] == {"a": found["plans"]["b"], "b": found["plans"]["a"]}


def test_both_plans_are_named_by_their_layouts(found):
    assert found["plans"]["a"].startswith(
        "2 layouts: wide dp_shard 2 tp 2 zero1 (embed, layers 0..19), narrow dp_shard 4 zero3 (layers 20..31, head)"
    )
    assert found["plans"]["b"].endswith("recompute full in layers 0..9, none in layers 10..31")


def test_a_uniform_plan_stands_beside_one_with_ranges():
    data = compare_plans(recomputing(THIRD), resolved(stack="meshwright"), "other.yaml").to_json()
    rows = data["against"]["ranges"]["rows"]
    assert [row["blocks"] for row in rows] == ["embed", "0..9", "10..31", "head"]
    assert rows[1]["a"]["passes_s"] > rows[1]["b"]["passes_s"]
    assert rows[1]["a"]["activations_bytes"] < rows[1]["b"]["activations_bytes"]
    assert rows[2]["a"] == rows[2]["b"]


def test_a_step_that_is_too_long_to_lower_is_named():
    plan = recomputing(THIRD)
    spec = plan.long.workload.model_copy(update={"global_batch": 2**20})
    work = replace(plan.setting.workload, global_batch=2**20)
    long = replace(
        plan,
        long=plan.long.model_copy(update={"workload": spec}),
        setting=replace(plan.setting, workload=work),
    )
    found = compare_ranges(plan, long)
    assert found["rows"] == []
    assert "passes > 262144" in found["why"]


def test_models_of_unlike_depth_do_not_compare_by_layer():
    found = compare_ranges(recomputing(THIRD), resolved(model="llama-3.2-1b", stack="meshwright"))
    assert found["why"] == "the models have 32 and 16 layers"


def test_compare_has_them_too(tmp_path):
    for name, plan in (("a", recomputing(THIRD)), ("b", resolved(stack="meshwright"))):
        (tmp_path / f"{name}.yaml").write_text(dump_plan(plan.long), encoding="utf-8")
    data = api.compare(tmp_path / "a.yaml", tmp_path / "b.yaml")
    assert [row["blocks"] for row in data["ranges"]["rows"]] == ["embed", "0..9", "10..31", "head"]
    assert api.compare(tmp_path / "b.yaml", tmp_path / "b.yaml")["ranges"] is None
