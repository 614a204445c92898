"""Rules on adapters against model, layout and stack, on plans and in the space of a search."""

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.model.adapter_targets import OTHER_NAMES, TARGETS_OF_MATRIX
from meshwright.model.load import load_model
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.adapters import Cuts, cut_problems
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import enumerate_space
from meshwright.stack.load import load_stack
from meshwright.workload.adapter import Adapter
from meshwright.workload.workload import Workload

CLUSTER = "h100-sxm-80gb x 16"


def problems(adapter, model="llama-3.1-8b", stack="generic", **keys):
    data = {
        "plan": 1,
        "model": model,
        "cluster": CLUSTER,
        "workload": {
            "task": "lora",
            "seq_len": 2048,
            "global_batch": 64,
            "adapter": adapter,
            **keys.pop("workload", {}),
        },
        "layout": {"dp_replicate": 16},
    }
    graph = load_model(model)
    plan = ShortPlan.model_validate(data | keys)
    return check_plan(expand(plan, graph.architecture), graph, load_cluster(CLUSTER), load_stack(stack))


@pytest.mark.parametrize(
    ("adapter", "keys"),
    [
        ({}, {}),
        ({"rank": 1024, "base": "nf4"}, {}),
        ({"base": "nf4"}, {"layout": {"tp": 8, "dp_shard": 2}, "sharding": "zero3"}),
        ({"base": "int8"}, {"layout": {"pp": 2, "tp": 4, "dp_shard": 2}, "sharding": "zero3"}),
        ({"form": "hd-pissa", "rank": 64}, {}),
        ({"form": "hd-pissa", "rank": 64}, {"layout": {"dp_shard": 16}, "sharding": "zero3"}),
        ({"form": "hd-pissa", "rank": 8, "targets": ("q", "o")}, {"model": "mixtral-8x7b"}),
        ({"targets": ("q_proj", "linear_fc1")}, {}),
        ({"base": "nf4"}, {"stack": "accelerate", "layout": {"dp_shard": 16}, "sharding": "zero3"}),
        ({"base": "nf4"}, {"offload": {"optimizer": "all"}}),
    ],
    ids=str,
)
def test_these_plans_are_legal(adapter, keys):
    assert [one for one in problems(adapter, **keys) if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("adapter", "keys", "field"),
    [
        ({"targets": ("lm_head",)}, {}, "workload.adapter.targets"),
        ({"targets": ("gate",)}, {"model": "gpt-3-175b"}, "workload.adapter.targets"),
        ({"rank": 1025}, {}, "workload.adapter.rank"),
        (
            {"base": "nf4"},
            {"model": "llama-3.2-1b", "layout": {"tp": 8, "dp_shard": 2}, "sharding": "zero3"},
            None,
        ),
        ({"base": "nf4"}, {"stack": "megatron-core"}, "workload.adapter.base"),
        ({"base": "nf4"}, {"stack": "megatron-bridge"}, "workload.adapter.base"),
        ({"form": "hd-pissa"}, {"stack": "torchtitan"}, "workload.adapter.form"),
        ({"form": "hd-pissa", "rank": 65}, {}, "workload.adapter.rank"),
        ({"form": "hd-pissa"}, {"layout": {"dp_shard": 16}, "sharding": "zero1"}, "sharding"),
        ({"form": "hd-pissa"}, {"model": "mixtral-8x7b"}, "workload.adapter.targets"),
        ({"form": "hd-pissa"}, {"workload": {"optimizer": "sgd"}}, "workload.optimizer"),
        ({"form": "hd-pissa"}, {"offload": {"optimizer": "all"}}, "offload.optimizer"),
        ({"base": "int8"}, {"offload": {"parameters": "all"}}, "offload.parameters"),
        ({}, {"model": "mixtral-8x7b", "layout": {"dp_shard": 16, "ep": 8, "etp": 2}}, "layout.etp"),
        ({"base": "nf4"}, {"model": "qwen2.5-7b", "layout": {"tp": 4, "dp_shard": 4}}, None),
    ],
    ids=str,
)
def test_adapters_that_a_plan_cannot_have_are_refused_by_name(adapter, keys, field):
    found = {one.field for one in problems(adapter, **keys) if one.severity == "error"}
    assert (field in found) if field else not any(name.startswith("workload.adapter") for name in found)


def test_a_cut_of_inputs_inside_of_a_block_is_refused():
    keys = {"model": "qwen3-30b-a3b", "layout": {"tp": 4, "dp_replicate": 4, "etp": 8}}
    found = problems({"base": "nf4", "targets": ("q",)}, **keys)
    assert [(one.field, one.suggestion) for one in found if "inside of a block" in one.rule] == [
        ("layout.etp", "etp: 6")
    ]
    assert not [one for one in problems({"base": "int8", "targets": ("q",)}, **keys) if "block" in one.rule]


def test_shards_that_split_a_block_are_refused():
    model, cuts = load_model("llama-3.2-1b"), Cuts(1, 1, 6, 1, 6, "zero3", gathered=True)
    (problem,) = cut_problems(Adapter(base="nf4"), model, cuts)
    assert problem.field == "layout.dp_shard"
    assert not list(cut_problems(Adapter(base="nf4"), model, replace(cuts, gathered=False)))
    assert not list(cut_problems(Adapter(base="int8"), model, cuts))


def test_a_stack_without_adapters_predicts_them_with_a_remark():
    (problem,) = (one for one in problems({}, stack="torchtitan") if one.field == "workload.adapter")
    assert problem.severity == "warning"


@pytest.mark.parametrize("adapter", [Adapter(base="nf4"), Adapter(form="hd-pissa", rank=100)], ids=str)
def test_a_search_has_the_plans_that_the_rules_allow(adapter):
    model, cluster, stack = load_model("llama-3.1-8b"), load_cluster(CLUSTER), load_stack("generic")
    workload = Workload(task="lora", seq_len=2048, global_batch=16, adapter=adapter)
    space = enumerate_space(Setting.of(model, cluster, workload, stack), {"recompute": "none", "cp": 1})
    assert len(space.plans)
    degrees = {(int(r), int(s)) for r, s in zip(space.plans.dp_replicate, space.plans.dp_shard, strict=True)}
    if adapter.of_each_replica:
        assert max(replicate * shard for replicate, shard in degrees) * 100 <= 1024
    else:
        assert any(shard > 1 for _, shard in degrees)


def test_the_page_names_every_matrix_and_every_name_of_others():
    page = Path("docs/plans.md").read_text(encoding="utf-8")
    section = page[page.index("### Adapters") : page.index("### Activations on the host")]
    experts = {name for name in TARGETS_OF_MATRIX if "experts" in name}
    missing = {name for name in {*TARGETS_OF_MATRIX, *OTHER_NAMES} - experts if f"`{name}`" not in section}
    assert not missing
