"""Every constant can be given by name: its usual value changes nothing, another value changes a prediction."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from meshwright.cost.constant_values import is_used, parts_of_name, value_in
from meshwright.cost.constants import constants
from meshwright.cost.constants_file import read_constants
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.named_constants import (
    Range,
    constant_named,
    full_names,
    named_constants,
    owners,
    usual_value,
)
from meshwright.cost.plan_report import report
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.verbs.predict.predict_plan import estimated

TIERED = (
    "pools: [{device: h100-sxm-80gb, count: 32}]\ntiers: [{name: pod, devices: 16, oversubscription: 1.5}]\n"
)
FULL_HOST = "pools: [{device: h100-sxm-80gb, count: 8, node: {like: dgx-h100, host_memory_gib: 300}}]\n"
EAGER = "separate softmax"
LLAMA, MIXTRAL, GPT = "llama-3.2-1b", "mixtral-8x7b", "gpt-22b"


def planned(model, cluster, stack, workload, **keys):
    """Return a short plan."""
    usual = {"seq_len": 2048, "global_batch": 32}
    head = {"plan": 1, "model": model, "cluster": cluster, "stack": stack, "workload": usual | workload}
    return ShortPlan.model_validate(head | keys)


def fp8(recipe, stack="torchtitan"):
    return planned(
        LLAMA, "h100-sxm-80gb x 8", stack, {"precision": "fp8", "fp8_recipe": recipe}, layout={"dp_shard": 8}
    )


CASES = {
    "sharded": planned(LLAMA, TIERED, "torchtitan", {}, layout={"dp_shard": 16, "tp": 2}, sharding="zero3"),
    "pipeline": planned(
        LLAMA, TIERED, "megatron-core", {}, layout={"dp_shard": 2, "tp": 8, "pp": 2}, sharding="zero1"
    ),
    "pipeline in a node": planned(
        LLAMA, "h100-sxm-80gb x 8", "megatron-core", {}, layout={"dp_shard": 4, "pp": 2}, sharding="zero1"
    ),
    "host": planned(LLAMA, "h100-sxm-80gb x 8", "torchtitan", {"seq_len": 128}, layout={"dp_shard": 8}),
    "unfused": planned(GPT, "a100-sxm-80gb x 16", "megatron-lm-2021", {}, layout={"tp": 8, "pp": 2}),
    EAGER: planned(GPT, "a100-sxm-80gb x 16", "megatron-lm-2021", {}, layout={"tp": 8, "pp": 2}),
    "eager": planned(LLAMA, "h100-sxm-80gb x 8", "accelerate", {}, layout={"dp_shard": 8}),
    "experts": planned(
        MIXTRAL, "h100-sxm-80gb x 32", "megatron-bridge", {}, layout={"dp_shard": 32, "ep": 4}
    ),
    "experts over nodes": planned(
        "qwen3-30b-a3b", "h100-sxm-80gb x 16", "generic", {}, layout={"dp_shard": 16, "ep": 16}
    ),
    "captured": planned(
        MIXTRAL,
        "gb200 x 64",
        "megatron-bridge",
        {"seq_len": 64, "global_batch": 64},
        layout={"dp_shard": 64, "ep": 4},
    ),
    "fused experts": planned(
        MIXTRAL,
        "gb200 x 64",
        "megatron-bridge",
        {"precision": "mxfp8", "global_batch": 64},
        layout={"dp_shard": 64, "ep": 4},
    ),
    "nvfp4": planned(LLAMA, "b200 x 8", "megatron-bridge", {"precision": "nvfp4"}, layout={"dp_shard": 8}),
    "offloaded": planned(
        "llama-3.1-8b",
        FULL_HOST,
        "generic",
        {},
        layout={"dp_shard": 8},
        sharding="zero1",
        offload={"optimizer": 1.0, "activations": 0.5},
    ),
    **{recipe: fp8(recipe) for recipe in ("tensorwise", "rowwise")},
    **{recipe: fp8(recipe, "megatron-core") for recipe in ("current", "delayed", "blockwise")},
}


@cache
def resolved(case):
    """Return a case, resolved; no packaged stack has a softmax of separate kernels, but a stack file may."""
    found = resolve(CASES[case])
    if case != EAGER:
        return found
    return replace(
        found, setting=replace(found.setting, stack=replace(found.setting.stack, fused_softmax=False))
    )


def figures(setting, case):
    """Return everything about a plan that a constant can change."""
    plan = resolved(case)
    estimate = estimated(replace(plan, setting=setting))
    step_s, ledgers = sum(estimate.parts.values()), [sum(ledger.values()) for ledger in estimate.ledgers]
    given = [name for name, _ in setting.given.values] if setting.given else []
    fits = given == ["usable_host_memory"] and report(plan.long, estimate, setting).fits
    return step_s, *ledgers, usable_device_bytes(setting.cluster), float(fits)


@cache
def usual_figures(case):
    return figures(resolved(case).setting, case)


GENERAL = [
    "oversubscription.pod" if one.owner == "tier" else f"{'*/' if one.owner == 'stack' else ''}{one.name}"
    for one in named_constants()
]
"""All constants, without a family or for any stack."""


LIKELY = {
    **dict.fromkeys(("host_memory_efficiency", "host_link_efficiency", "usable_host_memory"), "offloaded"),
    **dict.fromkeys(("*/host_s_per_layer", "backward_host_ratio"), "host"),
    **dict.fromkeys(
        ("grouped_half_width", "grouped_half_tokens", "expert_imbalance", "permute_bytes"), "experts"
    ),
    **dict.fromkeys(("fused_expert_rate", "mxfp8_speed_up"), "fused experts"),
    **dict.fromkeys(("fp8_speed_up", "quantise_efficiency"), "current"),
    **dict.fromkeys(("captured_attention", "*/expert_host_s"), "captured"),
    **dict.fromkeys(("nvfp4_speed_up", "quantise_bytes"), "nvfp4"),
    **dict.fromkeys(("norm_eager_forward_bytes", "norm_eager_backward_bytes"), "eager"),
    "score_eager_bytes": EAGER,
    "exchange_gain": "experts over nodes",
    "p2p_scaleup_efficiency": "pipeline in a node",
}
"""Cases that a constant changes, to be tried first; a recipe's cost has its case in its name."""


def moved_values(name, value):
    """Return values near and far from one, in the constant's range."""
    return [value * f for f in (0.9, 1.1, 0.1) if constant_named(name).range.holds(value * f)]


@pytest.mark.parametrize("case", CASES)
def test_usual_values_change_nothing(case):
    setting = resolved(case).setting
    usual = {name: value_in(setting, name) for name in GENERAL if is_used(name, setting)}
    same = read_constants(usual).on(setting)
    assert {name: value_in(same, name) for name in usual} == pytest.approx(usual, rel=1e-12)
    assert figures(same, case) == pytest.approx(usual_figures(case), rel=1e-12)


@pytest.mark.parametrize("name", GENERAL)
def test_another_value_changes_a_prediction(name):
    settings = {case: resolved(case).setting for case in CASES if is_used(name, resolved(case).setting)}
    likely_first = sorted(settings, key=lambda case: LIKELY.get(name, name).find(case) < 0)
    tries = (
        (case, read_constants({name: value}).on(settings[case]), value)
        for case in likely_first
        for value in moved_values(name, value_in(settings[case], name))
    )
    for case, changed, value in tries:
        assert value_in(changed, name) == pytest.approx(value, rel=1e-12)
        if figures(changed, case) != usual_figures(case):
            return
    pytest.fail(f"{name} changes no prediction")


def test_every_name_has_a_constant_with_a_unit_and_a_usual_value_in_its_range():
    for name in (name.replace("TIER", "pod") for name in full_names()):
        one = constant_named(name)
        assert one.unit, name
        assert one.meaning, name
        assert one.range.holds(usual_value(name)), name


def test_names_are_those_of_the_tables_and_of_nothing_else():
    owner_counts = Counter(one.owner for one in named_constants())
    assert owner_counts[""] == len(constants())
    assert constant_named("host_s_per_layer").owner == "stack"
    assert constant_named("gemm_efficiency").owner == "family"
    for wrong in (
        "gemm",
        "elementwise_factor",
        "h100/gemm_efficiency",
        "h100:nic_efficiency",
        "oversubscription.",
    ):
        assert constant_named(wrong) is None, wrong
    assert {parts_of_name(name)[0] for name in full_names() if ":" in name} == {"*", *owners("family")}
    assert not owners("tier")


def test_a_range_has_its_ends_but_for_an_open_one():
    half_open, closed = Range.parse("(0, 1]"), Range.parse("[1, 1e6]")
    assert [half_open.holds(value) for value in (0, 0.5, 1, 1.1)] == [False, True, True, False]
    assert [closed.holds(value) for value in (0.9, 1, 1e6, 2e6)] == [False, True, True, False]
    assert half_open.text == "above 0 and at most 1"
    assert closed.text == "from 1 to 1e+06"
