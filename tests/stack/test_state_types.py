"""Element types of states: the stack's own, those that follow others, and what the stack's counts become."""

from dataclasses import replace
from itertools import product

import pytest

from meshwright.stack.load import load_stack, stack_names
from meshwright.stack.state_types import (
    BYTES,
    KEYS,
    REMAINDER_BYTES,
    allowed_types,
    types_of,
    usual_types,
    with_types,
)

STACKS = [load_stack(name) for name in stack_names()]
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8")


def test_the_usual_types_written_out_change_nothing():
    for stack, precision in product(STACKS, PRECISIONS):
        usual = usual_types(stack, precision)
        assert with_types(stack, precision, usual.to_data()) is stack
        assert with_types(stack, precision, {}) is stack
        assert all(allowed_types(stack, precision)[key][0] == getattr(usual, key) for key in KEYS)


def test_types_come_off_again():
    for stack in STACKS:
        for key, words in allowed_types(stack, "bf16").items():
            changed = with_types(stack, "bf16", {key: words[-1]})
            assert with_types(changed, "bf16", {}) == stack
            assert with_types(changed, "bf16", {key: words[-1]}) == changed
            assert usual_types(changed, "bf16") == usual_types(stack, "bf16")


def test_other_facts_of_a_stack_stay_when_its_types_change_again():
    """Draws and fits change constants of a stack that has a plan's types; lowering the plan applies them again."""
    stack, written = load_stack("megatron-core"), {"second_moment": "fp8"}
    drawn = replace(with_types(stack, "bf16", written), host_s_per_layer=0.1)
    assert with_types(drawn, "bf16", written) == drawn
    assert with_types(drawn, "bf16", {}) == replace(stack, host_s_per_layer=0.1)
    other = with_types(drawn, "bf16", {"gradient": "bf16"})
    assert other == replace(with_types(stack, "bf16", {"gradient": "bf16"}), host_s_per_layer=0.1)


def test_the_bytes_of_a_stack_are_the_sum_of_its_types():
    """AdamW: 4 + 4 + 4 bytes of master copy and moments; narrower ones as their types say."""
    stack = load_stack("generic")
    for master, first, second in product(
        ("fp32", "fp16", "none"), ("fp32", "bf16", "fp8"), ("fp32", "fp16", "fp8")
    ):
        written = {"master": master, "first_moment": first, "second_moment": second}
        found = with_types(stack, "bf16", written)
        assert found.optimizer_bytes == BYTES[master] + BYTES[first] + BYTES[second]
        assert found.scaled_moments == (first == "fp8") + (second in ("fp16", "fp8"))
        assert found.optimizer_traffic_bytes == 2 * (found.optimizer_bytes - stack.optimizer_bytes)
        assert found.parameter_bytes == stack.parameter_bytes == 2


def test_a_narrow_optimizer_keeps_only_the_remainder_of_an_fp32_master_copy():
    stack = load_stack("megatron-core")
    narrow = with_types(stack, "bf16", {"second_moment": "fp8"})
    assert narrow.optimizer_bytes == REMAINDER_BYTES + 4 + 1
    assert with_types(stack, "fp16", {"second_moment": "fp8"}).optimizer_bytes == 4 + 4 + 1
    assert with_types(stack, "bf16", {"gradient": "bf16"}).optimizer_bytes == stack.optimizer_bytes
    assert (narrow.shardings, narrow.pipeline_shardings) == (("zero1",), ("zero1",))


@pytest.mark.parametrize(
    ("name", "written", "followed"),
    [
        ("megatron-core", {"gradient": "bf16"}, {"reduce": "bf16"}),
        ("megatron-core", {"reduce": "bf16"}, {"gradient": "bf16"}),
        ("megatron-core", {"first_moment": "bf16"}, {"second_moment": "fp32", "gradient": "fp32"}),
        ("megatron-bridge", {"gradient": "fp32"}, {"reduce": "fp32"}),
        ("deepspeed", {"gradient": "fp32"}, {"reduce": "fp32", "master": "fp32"}),
        ("deepspeed", {"gradient": "fp32", "reduce": "bf16"}, {}),
        (
            "torchtitan",
            {"gradient": "bf16"},
            {"master": "none", "first_moment": "bf16", "second_moment": "bf16", "reduce": "fp32"},
        ),
        ("torchtitan", {"master": "none"}, {"gradient": "bf16", "second_moment": "bf16"}),
        ("generic", {"gradient": "fp32"}, {"reduce": "bf16"}),
    ],
)
def test_what_a_plan_leaves_out_follows_where_the_stack_ties_it(name, written, followed):
    types = types_of(load_stack(name), "bf16", written).to_data()
    assert types == types | written | followed


def test_a_parameter_that_is_its_own_master_copy_gets_narrow_with_it():
    titan = load_stack("torchtitan")
    narrow = with_types(titan, "bf16", {"gradient": "bf16"})
    assert (titan.parameter_bytes, titan.gradient_bytes, titan.optimizer_bytes) == (4, 4, 8)
    assert (narrow.parameter_bytes, narrow.gradient_bytes, narrow.optimizer_bytes) == (2, 2, 4)
    assert narrow.gradient_communication_bytes == titan.gradient_communication_bytes


def test_the_wire_has_the_types_of_its_keys():
    stack = with_types(load_stack("generic"), "fp8", {"reduce": "fp32", "gather": "fp8"})
    assert (stack.gradient_communication_bytes, stack.parameter_wire_bytes) == (4, 1)
