"""The verbs as functions."""

import json
from dataclasses import replace

import pytest
from planning_questions import PLAN, written

from meshwright import api
from meshwright.errors import InputError
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.stack.state_types import usual_types
from meshwright.verbs.predict.predict_plan import predicted


@pytest.fixture
def plan_file(tmp_path):
    return written(tmp_path)


def test_settings_are_the_same_as_writing_them_into_the_file(tmp_path, plan_file):
    other = written(tmp_path, PLAN.replace("dp_shard: 4, tp: 2", "dp_shard: 2, tp: 4"), "other.yaml")
    assert api.predict(plan_file, settings=["tp=4"]) == api.predict(other)
    assert api.load(plan_file, ["tp=4"]).long == api.load(other).long


def test_a_new_cluster_and_a_degree_go_together(plan_file):
    for settings in (["cluster=h100-sxm-80gb x 32", "tp=4"], ["cluster = h100-sxm-80gb x 32", "tp = 4"]):
        changed = api.load(plan_file, settings)
        assert changed.setting.cluster.devices == 32
        assert (changed.short.layout.tp, changed.short.layout.dp_shard) == (4, 4)


def test_the_long_form_is_predicted_like_the_short(tmp_path, plan_file):
    short = api.load(plan_file)
    long = expand(short.short, short.setting.model.architecture)
    assert api.predict(written(tmp_path, dump_plan(long), "long.yaml")) == api.predict(plan_file)


def in_full(tmp_path, text):
    """The plan in full under another name of its layout, which no short form says."""
    short = api.load(written(tmp_path, text, "short.yaml"))
    long = dump_plan(expand(short.short, short.setting.model.architecture))
    return written(tmp_path, long.replace("main", "other"), "full.yaml")


def test_a_plan_beyond_the_closed_forms_is_played(tmp_path):
    text = PLAN.replace("zero1", "zero3")
    whole = api.predict(written(tmp_path, text))
    layered = api.predict(in_full(tmp_path, text + "gather: per-layer\n"))
    assert "closed forms" in whole.origin["step_time_s"]
    assert "simulation" in layered.origin["step_time_s"]
    assert layered.memory_bytes["total"] < whole.memory_bytes["total"]
    assert sum(layered.breakdown_s.values()) == pytest.approx(layered.step_time_s)


def test_gathering_layer_by_layer_changes_no_computation_but_the_accumulation_of_gradients(tmp_path):
    """Where gradients are reduced layer by layer only their shard is added to a buffer."""
    text = PLAN.replace("zero1", "zero3")
    plans = [
        api.load(written(tmp_path, text + more, name))
        for more, name in (("", "whole.yaml"), ("gather: per-layer\n", "layered.yaml"))
    ]
    whole, layered = (predicted(plan).breakdown_s["compute"] for plan in plans)
    assert layered < whole
    free = (("gradient_accumulation", 1e-12),)
    whole, layered = (
        predicted(
            replace(
                plan, setting=replace(plan.setting, cluster=replace(plan.setting.cluster, calibration=free))
            )
        ).breakdown_s["compute"]
        for plan in plans
    )
    assert layered == pytest.approx(whole, rel=0.01)


def test_traces_are_json_and_as_long_as_the_step(plan_file):
    trace = json.loads(json.dumps(api.trace(plan_file), allow_nan=False))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 1}
    end_s = max(event["ts"] + event["dur"] for event in spans) / 1e6
    assert end_s == pytest.approx(api.predict(plan_file).step_time_s, rel=0.03)


def test_steps_of_absurd_length_are_not_played(tmp_path):
    text = PLAN.replace("global_batch: 64", f"global_batch: {2**26}")
    file = written(tmp_path, text)
    assert api.predict(file).step_time_s > 1e5
    for play in (lambda: api.trace(file), lambda: api.predict(in_full(tmp_path, text))):
        with pytest.raises(InputError, match="passes > ") as caught:
            play()
        assert caught.value.problems[0].field == "workload.global_batch"


def test_files_that_a_plan_names_lie_beside_it(tmp_path):
    folder = tmp_path / "project"
    (folder / "model").mkdir(parents=True)
    config = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512}
    config |= {"num_attention_heads": 4, "vocab_size": 1000}
    (folder / "model" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "cluster.yaml").write_text(
        "name: ours\npools: [{name: all, device: h100-sxm-80gb, count: 16}]\n", encoding="utf-8"
    )
    text = PLAN.replace("llama-3.1-8b", "model").replace("h100-sxm-80gb x 16", "cluster.yaml")
    resolved = api.load(written(folder, text))
    assert resolved.setting.model.architecture.layers == 4
    assert resolved.setting.cluster.name == "ours"


def test_compare_shows_choices_that_differ_then_numbers(tmp_path, plan_file):
    other = written(tmp_path, PLAN.replace("pp: 2, dp_shard: 4", "dp_shard: 8"), "other.yaml")
    rows = api.compare(plan_file, other)["rows"]
    choices = {row["quantity"]: (row["a"], row["b"]) for row in rows if row["unit"] == "choice"}
    assert choices == {"layout.pp": (2, 1), "layout.dp_shard": (4, 8), "fits": (True, True)}
    numbers = {row["quantity"]: row for row in rows if row["unit"] != "choice"}
    assert numbers["memory_bytes.parameters"]["a"] < numbers["memory_bytes.parameters"]["b"]


def test_compare_of_a_long_plan_with_a_short_one(tmp_path, plan_file):
    short = api.load(plan_file)
    file = written(tmp_path, dump_plan(short.long), "long.yaml")
    rows = api.compare(plan_file, file)["rows"]
    assert [row["quantity"] for row in rows if row["unit"] == "choice"] == ["fits"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama-3.1-8b", "model"),
        ("h100-sxm-80gb x 12", "cluster"),
        ("b200", "cluster"),
        ("deepspeed", "stack"),
        ("megatron-core@0.19", "stack"),
    ],
)
def test_describe_knows_what_a_name_means(name, kind):
    assert api.describe(name)["kind"] == kind


def test_describe_knows_what_a_file_is(tmp_path, plan_file):
    cluster = written(tmp_path, "name: c\npools: [{name: all, device: b200, count: 8}]\n", "cluster.yaml")
    stack = written(tmp_path, "name: mine\nrelease: '1'\nsource: me\n", "stack.yaml")
    assert [api.describe(str(file))["kind"] for file in (plan_file, cluster, stack)] == [
        "plan",
        "cluster",
        "stack",
    ]


def test_the_long_form_that_describe_shows_is_the_plan(plan_file):
    data = api.describe(str(plan_file), long=True)
    shown, plan = parse_plan(json.dumps(data["plan"])), api.load(plan_file)
    assert shown.model_copy(update={"dtypes": None}) == plan.long
    assert shown.dtypes.written == usual_types(plan.setting.stack, "bf16").to_data()


def test_export_knows_its_targets(plan_file):
    with pytest.raises(InputError, match="did you mean torchtitan"):
        api.export(plan_file, to="torchtitans")
    assert api.export(plan_file, to="megatron").keys() == {"files", "refused"}
