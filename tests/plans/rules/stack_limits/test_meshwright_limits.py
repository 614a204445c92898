"""What the runtime refuses, it refuses by name; one table says it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from plan_cases import DENSE, LATENT, graph, long_plan

import meshwright.model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.rules.stack_limits.meshwright import LIMITS, unsupported_by_runtime
from meshwright.plans.rules.stack_limits.plan_values import values_of
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

ZOO = Path(meshwright.model.__file__).parent / "zoo"
LLAMA, MIXTRAL = load_model("llama-3.1-8b"), load_model("mixtral-8x7b")
DROPOUT = replace(LLAMA, architecture=replace(LLAMA.architecture, dropout=True))
SPREAD = long_plan(pipeline={"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}})
SPREAD_AFTER = long_plan(
    pipeline={"schedule": {"name": "1f1b", "vocabulary": "vocab-1", "step_validation": "after"}}
)


AFTER = long_plan(pipeline={"schedule": {"name": "1f1b", "step_validation": "after"}})
MUON_AFTER = long_plan(
    pipeline={"schedule": {"name": "1f1b", "step_validation": "after"}}, workload={"optimizer": "muon"}
)


def meshed():
    data = {
        "plan": 1,
        "model": "mixtral-8x7b",
        "cluster": "h100-sxm-80gb x 64",
        "workload": {"seq_len": 4096, "global_batch": 512},
        "layout": {"dp_replicate": 16, "tp": 4, "ep": 4, "etp": 2},
        "recompute": ["moe", "layernorm"],
    }
    return expand(ShortPlan.model_validate(data, strict=False), MIXTRAL.architecture)


def balanced():
    """A model whose routers have a correction that moves."""
    numerics = MIXTRAL.architecture.numerics
    routing = replace(numerics.routing, correction_speed=0.001)
    architecture = replace(MIXTRAL.architecture, numerics=replace(numerics, routing=routing))
    return replace(MIXTRAL, architecture=architecture)


def further(**changes):
    """A plan of DeepSeek-V3 with the layer for further tokens, in the long form."""
    config = json.loads((ZOO / "deepseek-v3.json").read_text()) | {"train_nextn_predict_layers": True}
    model = build_graph(read_architecture(config, "deepseek-v3", "here"))
    data = {
        "plan": 1,
        "model": "deepseek-v3",
        "cluster": "h100-sxm-80gb x 64",
        "workload": {"seq_len": 4096, "global_batch": 512},
        "layout": {"pp": 2, "dp_shard": 32, "ep": 32},
        "sharding": "zero1",
    }
    stages = changes.pop("stages", None)
    plan = expand(ShortPlan.model_validate(data | changes, strict=False), model.architecture)
    if stages:
        update = {"pipeline": plan.pipeline.model_copy(update={"stages": written_stages(stages)})}
        plan = plan.model_copy(update=update)
    return plan, model


RSA = long_plan({"dp_shard": 32, "cp": 2, "context": "rsa"})
CASES = [
    (long_plan(), graph(LATENT), "model", "its arithmetic is not known"),
    (AFTER, balanced(), "pipeline.schedule.step_validation", "corrections of routers"),
    (long_plan(), DROPOUT, "model", "dropout is left out"),
    (
        long_plan({"dp_shard": 32, "cp": 2, "context": "rsa"}),
        load_model("gpt-oss-20b"),
        "layout.context",
        "not run yet",
    ),
    (long_plan(workload={"task": "lora"}), LLAMA, "workload.task", "not run yet"),
    (
        long_plan(offload={"parameters": "all"}, workload={"optimizer": "muon"}),
        LLAMA,
        "offload.parameters",
        "that muon steps as matrices",
    ),
    (MUON_AFTER, LLAMA, "pipeline.schedule.step_validation", "muon may exchange matrices"),
    (
        long_plan(workload={"precision": "fp8"}, dtypes={"gather": "fp8"}, stack="generic"),
        LLAMA,
        "dtypes.gather",
        "not run yet",
    ),
    (
        long_plan(offload={"optimizer": "all"}, dtypes={"gradient": "bf16"}),
        LLAMA,
        "dtypes.gradient",
        "the host sums gradients in fp32",
    ),
    (
        long_plan(offload={"optimizer": 0.5}, dtypes={"second_moment": "fp8"}),
        LLAMA,
        "dtypes.second_moment",
        "a share of a moment",
    ),
    (
        long_plan(offload={"parameters": "all"}, dtypes={"master": "none"}),
        LLAMA,
        "dtypes.master",
        "the host steps a master copy",
    ),
    (long_plan(workload={"precision": "fp8"}), LLAMA, "workload.precision", "not run yet"),
    (*further(sharding="zero3", gather="per-layer"), "gather", "the head's table"),
    (*further(stages=(62, 0)), "pipeline.stages", "the last one has 0 layers"),
    (*further(pipeline={"schedule": "dualpipe"}), "pipeline.schedule", "2 chains"),
    (SPREAD_AFTER, LLAMA, "pipeline.schedule.step_validation", "not run yet"),
]


@pytest.mark.parametrize(("plan", "model", "field", "rule"), CASES)
def test_what_is_not_run_is_named_with_a_remedy(plan, model, field, rule):
    found = unsupported_by_runtime(plan, model)
    assert any(p.field == field and rule in p.rule and p.suggestion for p in found), found


def test_types_of_states_are_no_hindrance_but_for_gathers_in_fp8():
    for stack, gradient in (("deepspeed", "bf16"), ("deepspeed", "fp32"), ("megatron-core", "bf16")):
        assert unsupported_by_runtime(long_plan(dtypes={"gradient": gradient}, stack=stack), LLAMA) == []
    assert unsupported_by_runtime(long_plan(dtypes={"second_moment": "fp8"}, stack="generic"), LLAMA) == []


@pytest.mark.parametrize("optimizer", ["sgd", "lion", "muon", {"name": "adamw", "betas": (0.8, 0.9)}])
def test_every_optimizer_and_its_options_are_run(optimizer):
    assert unsupported_by_runtime(long_plan(workload={"optimizer": optimizer}), LLAMA) == []


def test_layers_that_predict_further_tokens_run_in_the_last_stage():
    assert unsupported_by_runtime(*further(stages=(61, 1))) == []
    assert unsupported_by_runtime(*further(sharding="zero3", gather="per-step")) == []


def test_every_row_of_the_table_has_a_case():
    stack = load_stack(OWN_STACK)
    found = [values_of(plan, model.architecture, workload_of(plan), stack) for plan, model, *_ in CASES]
    silent = [row.what for row in LIMITS if not any(list(row.limit.find(values)) for values in found)]
    assert silent == []


@pytest.mark.parametrize("plan", [long_plan(), SPREAD])
def test_a_dense_plan_has_no_hindrance(plan):
    assert unsupported_by_runtime(plan, LLAMA) == []
    assert DENSE.moe is None


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"])
def test_experts_on_a_mesh_of_their_own_are_no_hindrance(name):
    assert unsupported_by_runtime(meshed(), load_model(name)) == []


def test_precision_hinders_a_run_and_no_proof():
    plan = long_plan(workload={"precision": "fp8"})
    assert unsupported_by_runtime(plan, LLAMA, proof=True) == []


def test_dropout_is_a_warning():
    assert [problem.severity for problem in unsupported_by_runtime(long_plan(), DROPOUT)] == ["warning"]
