import json

import pytest
from hypothesis import assume, given, settings
from plan_cases import DENSE, SPARSE, changed, long_plan, short_plan, short_plans

from meshwright.errors import PlanError
from meshwright.model.load import load_model
from meshwright.plans.describe import describe_plan
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.load import load_stack


def test_short_plans_show_every_default():
    data = describe_plan(short_plan(), DENSE)
    assert data["form"] == "short"
    assert data["plan"]["layout"]["sequence_parallel"] is True
    assert data["plan"]["gather"] == "per-layer"
    assert data["plan"]["recompute"] == "none"
    assert {"layout.tp", "layout.pp", "sharding", "workload.seq_len"} <= set(data["given"])
    assert {"layout.sequence_parallel", "layout.ep", "gather", "recompute"} <= set(data["defaults"])
    assert not set(data["given"]) & set(data["defaults"])


def test_devices_and_stages_follow():
    data = describe_plan(short_plan(), DENSE)
    assert data["devices"] == 64
    assert [stage["layers"] for stage in data["stages"]] == [4, 4, 4, 4]
    assert [stage["first_layer"] for stage in data["stages"]] == [0, 4, 8, 12]
    assert [stage["pipeline_rank"] for stage in data["stages"]] == [0, 1, 2, 3]
    assert data["stages"][0]["embed"] is True
    assert data["stages"][3]["head"] is True


@settings(max_examples=15, deadline=None)
@given(short_plans())
def test_the_long_description_is_the_long_plan(plan):
    assume(plan.layout.pp * plan.pipeline.virtual_stages <= SPARSE.layers)
    long = expand(plan, SPARSE)
    data = describe_plan(plan, SPARSE, long=True)
    assert data["form"] == "long"
    assert parse_plan(json.dumps(data["plan"], ensure_ascii=False)) == long
    assert sum(stage["layers"] for stage in data["stages"]) == SPARSE.layers


def test_a_long_plan_is_described_as_given():
    plan = LongPlan.model_validate(
        {
            "plan": 1,
            "model": "m",
            "cluster": "c",
            "workload": {"seq_len": 8, "global_batch": 8},
            "stack": "s",
            "layouts": {"f": {"order": ("tp", "cp", "dp_shard", "dp_replicate", "pp"), "grid": {"tp": 2}}},
            "layers": {"embed": {"layout": "f"}, "0..15": {"layout": "f"}, "head": {"layout": "f"}},
            "pipeline": {
                "placement": (0,),
                "stages": (("embed", "0..15", "head"),),
                "schedule": {"name": "1f1b"},
            },
        }
    )
    data = describe_plan(plan, DENSE)
    assert data["form"] == "long"
    assert data["devices"] == 2
    assert "layouts.f.grid.tp" in data["given"]
    assert "layers.0..15.layout" in data["given"]
    assert {"layouts.f.grid.cp", "layers.0..15.recompute", "gather"} <= set(data["defaults"])


def test_layers_that_do_not_cover_the_model_are_problems():
    plan = changed(long_plan(), layers={"embed": {"layout": "main"}})
    with pytest.raises(PlanError, match=r"no rule for 0\.\.15"):
        describe_plan(plan, DENSE)


def test_more_stages_than_layers_are_a_problem():
    with pytest.raises(PlanError, match="32 stages > 16 layers"):
        describe_plan(short_plan({"pp": 32}), DENSE)


def test_the_long_form_shows_every_default_of_adapters():
    model, stack = load_model("gpt-3-175b"), load_stack("generic")
    workload = {
        "task": "lora",
        "seq_len": 2048,
        "global_batch": 8,
        "precision": "fp16",
        "adapter": {"rank": 8},
    }
    plan = ShortPlan.model_validate(
        {"plan": 1, "model": "gpt-3-175b", "cluster": "h100-sxm-80gb x 8", "workload": workload}
    )
    shown = describe_plan(plan, model.architecture, long=True, stack=stack)["plan"]
    assert shown["workload"]["adapter"] == {
        "form": "lora",
        "rank": 8,
        "alpha": 8.0,
        "targets": ["q", "k", "v", "o", "up", "down"],
        "base": "fp16",
    }


@pytest.mark.parametrize("long", [False, True])
def test_entries_of_exchanges_are_shown_with_their_defaults(long):
    entry = {
        "state": "parameter",
        "over": "dp_replicate",
        "outer": {"nesterov": {"lr": 0.7}},
        "with": "pairs",
    }
    plan = short_plan({"dp_replicate": 4, "dp_shard": 16}, sharding="none", synchronise=(entry,))
    data = describe_plan(plan, DENSE, long=long)
    (shown,) = data["plan"]["synchronise"]
    assert shown == entry | {
        "every": 1,
        "fragments": 1,
        "delay": 0,
        "own": "stale",
        "merge": 1.0,
        "weigh": "tokens",
        "keep": "device",
        "outer": {"nesterov": {"lr": 0.7, "momentum": 0.9}},
    }
    assert "synchronise" in data["given"]
    assert expand(plan, DENSE).layouts["main"].grid.dp_shard == 16
