"""A proof of rounded states sees states that are rounded otherwise."""

import pytest
import torch
from state_type_plans import PLANS, SHAPES

from meshwright.runtime.comm import reduction_precision
from meshwright.runtime.state.gradient_buffers import GradientBuffer
from meshwright.runtime.state.stored_states import StoredState
from meshwright.runtime.verify.run_state_case import run_case_and_states, run_state_case

PLAN = PLANS["zero1 and tp", "fp8 second moment"]


def silent(what, part):
    """Show nothing."""


def with_truncated_moments(monkeypatch):
    store = StoredState.store

    def truncated(self, wide):
        store(self, wide * 0.9 if self.values.dtype == torch.bfloat16 else wide)

    monkeypatch.setattr(StoredState, "store", truncated)


def with_unscaled_moments(monkeypatch):
    monkeypatch.setattr(StoredState, "to", lambda self, dtype: self.values.to(dtype))


def with_a_lost_micro_batch(monkeypatch):
    add = GradientBuffer._add

    def lost(self, names, part):
        add(self, names, part * (len(self.additions or ()) > 0))

    monkeypatch.setattr(GradientBuffer, "_add", lost)


def with_a_sum_that_rounds_twice(monkeypatch):
    summed = reduction_precision.sum_over_ranks

    def twice(communicator, item, tensor, precision, width, out=None, elements=None):
        tensor = tensor.to(torch.float8_e4m3fn).to(tensor.dtype)
        yield from summed(communicator, item, tensor, precision, width, out, elements)

    monkeypatch.setattr("meshwright.runtime.state.sharded_unit.sum_over_ranks", twice)


FAULTS = (
    with_truncated_moments,
    with_unscaled_moments,
    with_a_lost_micro_batch,
    with_a_sum_that_rounds_twice,
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_other_rounding_is_seen(fault, monkeypatch):
    fault(monkeypatch)
    outcome = run_state_case(PLAN.trial(), silent)
    assert not outcome.equal
    assert not outcome.failure


def test_without_a_fault_all_is_equal():
    assert run_state_case(PLAN.trial(), silent).equal


def test_a_plan_without_types_is_run_with_wide_states_only():
    outcome = run_case_and_states(SHAPES["one rank"].trial(), silent)
    assert outcome.equal
    assert outcome.states is None
    assert outcome.to_json()["states"] is None
