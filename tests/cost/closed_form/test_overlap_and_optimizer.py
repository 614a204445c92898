"""What runs beside compute: never better than alone, never worse than one after the other and the slow-down."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.load import load_cluster
from meshwright.cost.closed_form.overlap_and_optimizer import (
    during_gather,
    optimizer_seconds,
    reduction_slowdown,
    reduction_tail,
    send_occupancy,
)
from meshwright.cost.operators.kernel_and_collective_times import hardware_times_for
from meshwright.stack.load import load_stack
from meshwright.stack.state_types import with_types

FORMS = hardware_times_for(load_cluster("h100-sxm-80gb x 8").pool, "bf16")
SLOWDOWN = FORMS.constants["overlap_slowdown"]
seconds = st.floats(1e-6, 10)
units = st.integers(1, 40)
ABOVE = 1 + 1e-12
ROUNDING = 1e-14  # seconds: of differences between sums of a few seconds
laws = settings(deadline=None, max_examples=80)


@laws
@given(seconds, seconds)
def test_a_pass_beside_a_gather_takes_at_least_both_and_at_most_their_sum(compute, left):
    together = during_gather(compute, left, FORMS)
    assert max(compute, left) <= together <= (compute + left) * ABOVE


@laws
@given(seconds, seconds, units)
def test_a_reduction_hides_in_its_pass_and_leaves_at_least_its_last_block(reduction, backward, blocks):
    slow = reduction_slowdown(reduction, backward, blocks, FORMS)
    tail = reduction_tail(reduction, backward, blocks, FORMS)
    assert 0 <= slow <= SLOWDOWN * min(reduction, backward)
    assert reduction / blocks <= tail + ROUNDING
    assert tail <= reduction + ROUNDING
    both = backward + slow + tail
    assert max(backward, reduction) <= both * ABOVE
    assert both <= (1 + SLOWDOWN) * (backward + reduction)


@laws
@given(seconds, seconds)
def test_a_single_block_hides_nothing(reduction, backward):
    assert reduction_slowdown(reduction, backward, 1, FORMS) == 0
    assert reduction_tail(reduction, backward, 1, FORMS) == pytest.approx(reduction)


@laws
@given(seconds, seconds, units, seconds)
def test_a_reduction_that_waits_for_another_ends_later(reduction, backward, blocks, ahead):
    alone = reduction_tail(reduction, backward, blocks, FORMS)
    behind = reduction_tail(reduction, backward, blocks, FORMS, ahead)
    assert alone <= behind <= (alone + ahead) * ABOVE


def test_the_optimizer_costs_its_start_and_its_bytes():
    stack = load_stack("generic")
    none, some = optimizer_seconds(0, stack, FORMS), optimizer_seconds(10**9, stack, FORMS)
    assert none == FORMS.constants["step_fixed_s"]
    assert optimizer_seconds(2 * 10**9, stack, FORMS) - none == pytest.approx(2 * (some - none))
    assert some - none > 30e9 / FORMS.memory_bytes_per_s
    narrow = with_types(stack, "bf16", {"first_moment": "bf16", "second_moment": "fp8"})
    moved = FORMS.constants["optimizer_bytes"] + FORMS.constants["gradient_norm_bytes"]
    saved = 2 * (2 + 3)  # two bytes of one moment and three of the other, read and written
    ratio = (optimizer_seconds(10**9, narrow, FORMS) - none) / (some - none)
    assert ratio == pytest.approx((moved - saved) / moved)


def test_a_send_keeps_its_rank_unless_the_schedule_and_the_stack_can_overlap_it():
    assert send_occupancy(False, True, FORMS) == send_occupancy(True, False, FORMS) == 1
    assert send_occupancy(True, True, FORMS) == SLOWDOWN
