"""Layers that predict further tokens in Megatron's words: what is written, what is refused, what comes back."""

from dataclasses import replace

import pytest
from bridge_cases import exported, overrides, recipe
from export_cases import Case, case, degree, megatron_options, problem_fields, short_plans
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from multi_token_models import further_file
from test_megatron_export import attention_parameters, evaluate, expert_parameters, parameters
from test_round_trip import FILES, long_of, sayable

from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.importing.plan_from_facts import Target, assemble
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.model.operators.operator_types import Loss
from meshwright.verbs.import_ import ImportRequest, import_text

SAYING = {"megatron", "bridge"}


def further_case(folder, count=1, zoo="deepseek-v3", changes=None, **choices):
    defaults = {
        "devices": "h100-sxm-80gb x 64",
        "workload": {"seq_len": 4096},
        "layout": {"pp": 4, "dp_shard": 16, "ep": 16},
        "sharding": "zero1",
    }
    return case(further_file(folder, zoo, count, **(changes or {})), **{**defaults, **choices})


def with_stages(this, *stages):
    pipeline = this.plan.pipeline.model_copy(update={"stages": stages})
    return replace(this, plan=this.plan.model_copy(update={"pipeline": pipeline}))


def with_architecture(this, **changes):
    architecture = replace(this.model.architecture, **changes)
    return replace(this, model=replace(this.model, architecture=architecture))


@pytest.mark.parametrize("count", [1, 2])
def test_the_options_build_a_model_of_the_right_size(tmp_path, count):
    this = further_case(tmp_path, count)
    found, hidden = megatron_options(this.to("megatron")), this.model.architecture.hidden
    assert degree(found, "--num-layers") == 61
    assert evaluate(found["--moe-layer-freq"][0]) == [0] * 3 + [1] * 58
    layer = attention_parameters(found, hidden, False) + expert_parameters(found, hidden, False) + 2 * hidden
    further = layer + 2 * hidden * hidden + 3 * hidden  # the projection and the norms before and behind it
    main = parameters(found, this.model.architecture.vocab)
    assert main + degree(found, "--mtp-num-layers") * further == this.model.parameters


def test_the_factor_over_the_layers_is_the_weight_of_each_loss(tmp_path):
    this = further_case(tmp_path, 2, changes={"mtp_loss_scaling_factor": 0.7})
    found = megatron_options(this.to("megatron"))
    each = float(found["--mtp-loss-scaling-factor"][0]) / degree(found, "--mtp-num-layers")
    losses = [op for op in this.model.blocks[-2].operators if isinstance(op, Loss)]
    assert [loss.weight for loss in losses] == [each]
    (said,) = [r for r in this.to("megatron").refused if r.key == "model.next_token_weight"]
    assert f"{4096 / 4094:.6g}" in said.why


def test_stages_of_a_layout_end_with_them(tmp_path):
    found = megatron_options(further_case(tmp_path, 2).to("megatron"))
    assert found["--pipeline-model-parallel-layout"] == ["Et*16|(t*16|)*2t*13m*2L"]


def test_equal_stages_with_them_behind_the_last_need_no_layout(tmp_path):
    this = further_case(tmp_path, 1, changes={"num_hidden_layers": 64})
    uneven = with_stages(this, ("embed", "0..15"), ("16..31",), ("32..47",), ("48..64", "head"))
    assert "--pipeline-model-parallel-layout" not in megatron_options(uneven.to("megatron"))
    even = with_stages(this, ("embed", "0..15"), ("16..31",), ("32..48",), ("49..64", "head"))
    assert megatron_options(even.to("megatron"))["--pipeline-model-parallel-layout"] == [
        "Et*16|t*16|t*17|t*15mL"
    ]


def test_layers_apart_from_the_head_are_refused(tmp_path):
    this = further_case(tmp_path, 2)
    apart = with_stages(this, ("embed", "0..20"), ("21..40",), ("41..61",), ("62", "head"))
    assert problem_fields(apart, "megatron") == problem_fields(apart, "bridge") == {"pipeline.stages"}


def unlike(arch):
    """Changes of an architecture after which Megatron would make those layers in another way."""
    routed = (*arch.moe.layers[:-2], False, True)
    windows = (*[128] * (arch.layers - 2), None, None)
    return {
        "model.positions": {"positions": "learned", "max_positions": 8192},
        "model.moe": {"moe": replace(arch.moe, layers=routed)},
        "model.windows": {"windows": windows},
    }


@pytest.mark.parametrize("field", ["model.positions", "model.moe", "model.windows"])
def test_layers_that_megatron_would_make_otherwise_are_refused(tmp_path, field):
    this = further_case(tmp_path)
    changed = with_architecture(this, **unlike(this.model.architecture)[field])
    assert problem_fields(changed, "megatron") == {field}


def test_windows_that_are_alike_are_written_for_the_main_layers(tmp_path):
    this = further_case(tmp_path)
    changed = with_architecture(this, windows=(128, *[None] * 60, 128))
    pattern = megatron_options(changed.to("megatron"))["--window-attn-skip-freq"][0]
    assert evaluate(pattern) == [1] + [0] * 60


@pytest.mark.parametrize(("count", "beside"), [(1, True), (2, False)])
def test_exchanges_run_beside_compute_with_one_such_layer(tmp_path, count, beside):
    this = further_case(
        tmp_path,
        count,
        pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2},
    )
    overlapping = replace(this, stack=replace(this.stack, overlap_expert_exchange=True))
    export = overlapping.to("megatron")
    assert ("--overlap-moe-expert-parallel-comm" in megatron_options(export)) is beside
    assert any("one layer for further tokens" in refusal.why for refusal in export.refused) is not beside


@pytest.mark.parametrize("target", sorted(set(TARGETS) - SAYING))
def test_other_targets_refuse_them_by_name(tmp_path, target):
    with pytest.raises(UnsupportedError) as caught:
        further_case(tmp_path).to(target)
    (problem,) = [p for p in caught.value.problems if "further tokens" in p.rule]
    assert (problem.field, problem.value) == ("model", "deepseek-v3")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return (
        further_file(folder, "deepseek-v3", 2, mtp_loss_scaling_factor=0.25),
        further_file(folder, "glm-4.5-air", 1),
    )


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_plan_and_model_come_back(files, data):
    this = data.draw(short_plans(models=files))
    assume(not this.errors)
    try:
        text = this.to("megatron").files[FILES["megatron"]]
    except UnsupportedError:
        assume(False)
    back = import_text(text, ImportRequest(model=this.short.model, on=this.short.cluster))
    assert not back.problems
    assert sayable(long_of(back.plan, back.model.architecture), "megatron") == sayable(this.plan, "megatron")
    zoo = import_text(text, ImportRequest(on=this.short.cluster, model=this.model.architecture.name))
    assert [problem.severity for problem in zoo.problems] == ["warning"]
    same = zoo.model.architecture
    assert without_origin(same) == without_origin(this.model.architecture)
    named = zoo.plan.model_copy(update={"model": this.short.model})
    assert sayable(long_of(named, same), "megatron") == sayable(this.plan, "megatron")


def without_origin(arch):
    """An architecture, wherever its file is and whether it says λ or leaves it to its convention."""
    return replace(arch, source="", assumed=())


def test_bridge_has_fields_for_them_and_they_come_back(tmp_path):
    this = further_case(tmp_path, 2, changes={"mtp_loss_scaling_factor": 0.25}, stack_name="megatron-bridge")
    export = exported(this)
    said = overrides(export)["model"]
    assert (said["mtp_num_layers"], said["mtp_loss_scaling_factor"]) == (2, 0.25)
    assert said["pipeline_model_parallel_layout"] == "Et*16|(t*16|)*2t*13m*2L"
    foreign = import_bridge(export.files["bridge/overrides.yaml"])
    assert (foreign.value("next_tokens.layers"), foreign.value("next_tokens.weight")) == (2, 0.25)
    target = Target(model=this.short.model, cluster=this.short.cluster, stack="megatron-bridge", devices=64)
    plan, _, problems = assemble(foreign, target, this.model.architecture)
    assert not [*foreign.problems, *problems]
    assert sayable(long_of(plan, this.model.architecture), "megatron") == sayable(this.plan, "megatron")


def test_the_recipe_is_found_by_what_the_model_is(tmp_path):
    this = further_case(tmp_path, 1)
    renamed = with_architecture(this, name="plan-model", source="elsewhere")
    assert recipe(exported(renamed)) == recipe(exported(this)) == "deepseek_v3_pretrain_config"


def test_a_recipe_of_another_main_model_is_not_taken(tmp_path):
    other: Case = further_case(tmp_path, 1, changes={"num_hidden_layers": 30})
    assert problem_fields(other, "bridge") == {"stack"}
