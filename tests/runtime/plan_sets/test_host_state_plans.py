"""Plans with model states on the host compute what one device computes, and copy the bytes that planning counts."""

import pytest
from host_state_plans import PLANS, QUICK, TYPED

from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.run_state_case import run_case_and_states


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow, id=", ".join(of)) for of in PLANS]
)
def test_states_on_the_host_give_the_numbers_of_one_device(of):
    outcome = run_case(PLANS[of].trial(), lambda what, part: None)
    assert outcome.equal, outcome.to_json()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("of", TYPED, ids=", ".join)
def test_narrow_states_on_the_host_are_rounded_as_one_process_rounds_them(of):
    outcome = run_case_and_states(TYPED[of].trial(), lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert outcome.states is not None
    assert outcome.states.equal


def test_there_are_plans_for_every_way_of_cutting_work():
    plans = PLANS.values()
    assert len(PLANS) >= 40
    assert {plan.sharding for plan in plans} == {"none", "zero1", "zero2", "zero3"}
    assert all(any(getattr(plan, axis) > 1 for plan in plans) for axis in ("pp", "tp", "cp", "ep", "etp"))
