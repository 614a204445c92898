import pytest
from hypothesis import given, settings
from plan_cases import DENSE, changed, long_plan, long_plans, short_plan

from meshwright.errors import InputError
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.not_in_this_release import REFUSALS, unsupported, workload_of

MAIN = {"layout": "main"}


def fields(plan):
    return [problem.field for problem in unsupported(plan)]


def pipeline(**keys):
    return {"pipeline": {"placement": (0, 1, 2, 3), "schedule": {"name": "1f1b"}} | keys}


def layout(**keys):
    return {"layouts": {"main": long_plan().layouts["main"].model_dump() | keys}}


def layers(**rules):
    return {"layers": {"embed": MAIN, "0..15": MAIN, "head": MAIN} | rules}


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full", ("mlp",)])
def test_what_the_short_form_says_is_supported(sharding, schedule, recompute):
    plan = long_plan(sharding=sharding, pipeline={"schedule": schedule}, recompute=recompute)
    assert unsupported(plan) == []


CASES = [
    ({"workload": {"seq_len": 0, "global_batch": 8}}, "workload.seq_len", "whole number from 1"),
    (
        {"workload": {"seq_len": 8, "global_batch": 8, "task": "post-train"}},
        "workload.task",
        "not supported yet",
    ),
    ({"workload": {"seq_len": 8, "global_batch": 8, "task": "x"}}, "workload.task", "unknown"),
    ({"workload": {"seq_len": 8, "global_batch": 8, "precision": "fp32"}}, "workload.precision", "not supp"),
    ({"states": {"parameter": ("dp_shard",)}}, "states", "this is none of none, zero1, zero2, zero3"),
    (
        {"states": {"optimizer": ("dp_shard", "dp_replicate")}, **layout(grid={"dp_replicate": 8})},
        "states",
        "",
    ),
    (layers(embed=MAIN | {"vocabulary": ("pp",)}), "layers.embed.vocabulary", "other axes than tp"),
    (layers(embed=MAIN | {"vocabulary": ("pp", "tp")}), "layers.head.vocabulary", "one alone"),
    (pipeline(schedule={"name": "1f1b", "vocabulary": "vocab-1"}), "pipeline.schedule.vocabulary", "spread"),
    (layers(head=MAIN | {"recompute": "full"}), "layers.head.recompute", "recomputing head"),
    (pipeline(schedule={"file": "s.csv"}), "pipeline.schedule.file", "was not read"),
    (pipeline(schedule={}), "pipeline.schedule", "has no name"),
    (pipeline(schedule={"name": "1f1bb"}), "pipeline.schedule", "unknown schedule"),
    (pipeline(placement=(0, 1, 1, 0)), "pipeline.placement", "another placement"),
    (pipeline(placement=(0, 1, 0)), "pipeline.placement", "another placement"),
    (pipeline(placement=(10**30,)), "pipeline.placement", "another placement"),
    ({"sequence": {"policy": "hdp", "capacity_tokens": 8}}, "sequence", "not supported yet"),
    ({"calls": {"a": {"does": "serve", "layout": "main"}}}, "calls", "not supported yet"),
    ({"offload": {"optimizer": "nvme"}}, "offload", "states on NVMe"),
    ({"edges": ({"from": "a", "to": "b", "carry": "weights"},)}, "edges", "not supported yet"),
]


@pytest.mark.parametrize(("keys", "field", "expected"), CASES)
def test_what_is_refused_is_refused_by_name(keys, field, expected):
    found = [problem for problem in unsupported(changed(long_plan(), **keys)) if problem.field == field]
    assert found
    assert all(expected in problem.rule and problem.suggestion for problem in found)


def test_every_refusal_has_a_case():
    refused = [changed(long_plan(), **keys) for keys, _, _ in CASES]
    assert all(any(list(refusal(plan)) for plan in refused) for refusal in REFUSALS)


def test_sharding_over_an_axis_of_degree_one_changes_nothing():
    one_cp = changed(
        long_plan(sharding="zero3"),
        states=dict.fromkeys(("parameter", "gradient", "optimizer"), ("dp_shard",)),
    )
    assert unsupported(one_cp) == []
    two_cp = changed(one_cp, **layout(grid={"dp_shard": 4, "cp": 2, "tp": 2}))
    assert fields(two_cp) == ["states"]


def test_uneven_stages_are_supported():
    stages = (("embed", "0..2"), ("3..7",), ("8..12",), ("13..15", "head"))
    assert unsupported(changed(long_plan(), **pipeline(stages=stages))) == []


def test_layers_may_recompute_different_things():
    full, some = MAIN | {"recompute": "full"}, MAIN | {"recompute": ("mlp", "core_attn")}
    rules = {"embed": MAIN, "0..3": full, "5": some, "4..15": MAIN, "head": MAIN}
    assert unsupported(changed(long_plan(), layers=rules)) == []


@settings(max_examples=60, deadline=None)
@given(long_plans())
def test_no_plan_raises(plan):
    assert all(problem.rule and problem.severity == "error" for problem in unsupported(plan))


def test_the_workload_of_a_plan():
    workload = workload_of(expand(short_plan(), DENSE))
    assert (workload.seq_len, workload.global_batch, workload.precision) == (4096, 64, "bf16")
    packed = {"documents": 900}, {"documents": (512, 3072)}
    lengths = [workload_of(short_plan(workload=said)).documents.lengths for said in packed]
    assert lengths == [(900,), (512, 3072)]
    with pytest.raises(InputError, match="global_batch"):
        workload_of(long_plan(workload={"global_batch": -1}))
