"""Constants that the user gives: files and mappings, everything that is wrong at once, and values without spread."""

import json
from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.evaluate_plans import step_seconds
from meshwright.cost.constant_values import is_known, value_in, with_values
from meshwright.cost.constants_file import AS_MAPPING, Constants, read_constants, with_constants
from meshwright.cost.uncertainty.constant_draws import constant_draws
from meshwright.cost.uncertainty.step_error import plan_errors
from meshwright.errors import InputError
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack, parse_stack
from meshwright.workload.workload import Workload

TIERED = (
    "pools: [{device: h100-sxm-80gb, count: 16}]\ntiers: [{name: pod, devices: 8, oversubscription: 4}]\n"
)
VALUES = {
    "nic_efficiency": 0.74,
    "h100:gemm_efficiency": 0.71,
    "llm-foundry/elementwise_factor": 1.3,
    "*/host_s_per_layer": 0.0002,
    "oversubscription.pod": 2,
}
YAML = "# ours\n" + "\n".join(f'"{name}": {value}' for name, value in VALUES.items())


def setting(cluster=TIERED, stack="llm-foundry"):
    workload = Workload(seq_len=4096, global_batch=32, precision="bf16")
    return Setting(load_model("llama-3.1-8b"), load_cluster(cluster), workload, load_stack(stack))


def plans():
    shared = {"plan": 1, "model": "llama-3.1-8b", "cluster": "h100-sxm-80gb x 16"}
    shared["workload"] = {"seq_len": 4096, "global_batch": 32}
    layouts = ({"dp_shard": 16}, {"dp_shard": 4, "tp": 4})
    return from_shorts([ShortPlan.model_validate(shared | {"layout": layout}) for layout in layouts])


def written(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(given, own=()):
    with pytest.raises(InputError) as raised:
        read_constants(given, own)
    return {problem.field: problem for problem in raised.value.problems}


@pytest.mark.parametrize("name", ["mine.yaml", "mine.json"])
def test_a_file_in_yaml_or_json_is_the_mapping_that_it_has(tmp_path, name):
    path = written(tmp_path, json.dumps(VALUES) if name.endswith("json") else YAML, name)
    found = read_constants(path)
    assert found == replace(read_constants(VALUES), source=str(path))
    assert found == read_constants(str(path))
    assert dict(found.values) == VALUES


def test_nothing_given_changes_nothing():
    here = setting()
    assert Constants().on(here) is here
    assert with_constants(here, None) is here


def test_given_constants_are_those_of_the_setting_with_its_values():
    here = setting()
    given, changed = with_constants(here, VALUES), with_values(here, VALUES, f"given in {AS_MAPPING}")
    assert replace(given, given=None) == changed
    assert np.array_equal(step_seconds(plans(), given), step_seconds(plans(), changed))
    assert not np.array_equal(step_seconds(plans(), given), step_seconds(plans(), here))
    assert dict(given.given.values) == VALUES
    assert given.cluster.tiers[0].source == f"given in {AS_MAPPING}"


def test_giving_them_again_keeps_the_stack_so_that_sizes_of_a_cluster_share_it():
    given = read_constants(VALUES)
    once = given.on(setting())
    assert given.on(once).stack is once.stack


def test_of_two_names_of_one_constant_the_narrower_owner_counts():
    mapping = {"h100:gemm_efficiency": 0.5, "*:gemm_efficiency": 0.6, "gemm_efficiency": 0.4}
    for names in (mapping, dict(reversed(mapping.items()))):
        changed = with_constants(setting(), names)
        assert value_in(changed, "h100:gemm_efficiency") == 0.5
        assert changed.given.values == (("h100:gemm_efficiency", 0.5),)


def test_constants_of_others_change_nothing_and_are_named():
    here = setting()
    others = {"a100:gemm_efficiency": 0.5, "nemo/elementwise_factor": 2.0, "oversubscription.rack": 3.0}
    changed = with_constants(here, others)
    assert replace(changed, given=None) == here
    assert set(changed.given.unused) == set(others)
    assert all(name in changed.given.text for name in others)


def test_they_go_before_the_calibration_and_the_jitter_of_the_cluster():
    here = setting()
    calibration = (("gemm_efficiency", 0.5), ("host_s_per_layer", 0.001), ("nic_efficiency", 0.6))
    own = replace(here, cluster=replace(here.cluster, calibration=calibration, step_jitter=0.02))
    given = {"h100:gemm_efficiency": 0.7, "llm-foundry/host_s_per_layer": 0.0001, "step_jitter": 0.0}
    changed = with_constants(own, given)
    assert {name: value_in(changed, name) for name in given} == given
    assert value_in(changed, "nic_efficiency") == 0.6
    bare = with_constants(replace(here, cluster=replace(here.cluster, calibration=calibration[2:])), given)
    assert np.array_equal(step_seconds(plans(), changed), step_seconds(plans(), bare))


def test_the_host_time_needs_no_owner_because_a_calibration_has_it_so():
    for name in ("host_s_per_layer", "*/host_s_per_layer"):
        assert value_in(with_constants(setting(), {name: 0.0005}), "*/host_s_per_layer") == 0.0005


def test_given_constants_are_not_drawn():
    here = setting()
    drawn = {name for name, _ in constant_draws().concerning(here, plans())}
    given = {
        "h100:gemm_efficiency",
        "llm-foundry/elementwise_factor",
        "llm-foundry/host_s_per_layer",
        "hbm_efficiency",
    }
    assert given <= drawn
    changed = with_constants(here, {name: value_in(here, name) for name in given})
    assert {name for name, _ in constant_draws().concerning(changed, plans())} == drawn - given
    assert all(is_known(changed, name) and not is_known(here, name) for name in given)
    any_stack = with_constants(here, {"*/elementwise_factor": value_in(here, "*/elementwise_factor")})
    assert "llm-foundry/elementwise_factor" not in dict(constant_draws().concerning(any_stack, plans()))


def test_a_prediction_whose_constants_are_all_given_has_no_spread_from_them():
    here = setting()
    every = {name: value_in(here, name) for name, _ in constant_draws().concerning(here, plans())}
    for before, after in zip(
        plan_errors(plans(), here), plan_errors(plans(), with_constants(here, every)), strict=True
    ):
        assert (after.parts.constants.low, after.parts.constants.high) == (1.0, 1.0)
        assert after.interval.high < before.interval.high


def test_everything_that_is_wrong_comes_at_once_with_a_suggestion():
    found = problems(
        {
            "nic_eficiency": 0.74,
            "elementwise_factor": 1.2,
            "h100:gemm_efficiency": 71,
            "usable_memory": 0,
            "hbm_efficiency": "high",
            "score_forward_bytes": True,
            "nic_latency_s": float("nan"),
            "p2p_latency_s": float("inf"),
            "step_jitter": None,
            "oversubscription.pod": 0.5,
            "h10:gemm_efficiency": 0.7,
            "h800-sxm-80gb:gemm_efficiency": 0.7,
            "nem/elementwise_factor": 1.0,
            "mine/elementwise_factor": 1.0,
        },
        ["mine"],
    )
    fields = {field.removeprefix("constants.") for field in found}
    assert "mine/elementwise_factor" not in fields
    assert len(fields) == 13
    assert "nic_efficiency" in found["constants.nic_eficiency"].suggestion
    assert "*/elementwise_factor" in found["constants.elementwise_factor"].suggestion
    assert found["constants.h100:gemm_efficiency"].suggestion == "h100:gemm_efficiency: 0.6844"
    assert found["constants.h800-sxm-80gb:gemm_efficiency"].suggestion == "h100:gemm_efficiency"
    assert "h100:gemm_efficiency" in found["constants.h10:gemm_efficiency"].suggestion
    assert "nemo/elementwise_factor" in found["constants.nem/elementwise_factor"].suggestion
    assert found["constants.usable_memory"].rule == "must be above 0 and at most 1 (fraction of capacity)"
    assert "must be a number" in found["constants.hbm_efficiency"].rule
    assert all(problem.suggestion for problem in found.values())


def test_a_stack_file_of_the_question_has_constants_of_its_own_name():
    stack = parse_stack("like: torchtitan\nname: ours\nrelease: '1'\nsource: a test\n")
    here = replace(setting(), stack=stack)
    assert with_constants(here, {"ours/elementwise_factor": 1.7}).stack.elementwise_factor == 1.7
    with pytest.raises(InputError):
        with_constants(setting(), {"ours/elementwise_factor": 1.7})


@pytest.mark.parametrize("text", ["", "- 1", "0.5", "{", "nic_efficiency: 1\nnic_efficiency: 2", "a: &b 1"])
def test_a_file_that_is_no_mapping_is_named(tmp_path, text):
    path = written(tmp_path, text)
    (problem,) = problems(path).values()
    assert str(path) in problem.rule
    assert problem.suggestion


def test_numbers_that_are_not_finite_come_with_the_others(tmp_path):
    path = written(tmp_path, "nic_efficiency: .nan\nhbm_efficiency: .inf\nusable_memory: 2\n")
    assert set(problems(path)) == {
        f"constants.{n}" for n in ("nic_efficiency", "hbm_efficiency", "usable_memory")
    }


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    (problem,) = problems(tmp_path / "none.yaml").values()
    assert problem.field == "constants"
    assert "none.yaml" in problem.value
    written(tmp_path, "").write_bytes(b"\xff\xfe")
    assert "constants" in problems(tmp_path / "mine.yaml")
