"""Plans that write element types of states: the same numbers with wide states, the same rounding with narrow ones."""

import pytest
from state_type_plans import PLANS, QUICK

from meshwright.runtime.verify.run_state_case import run_case_and_states


def silent(what, part):
    """Show nothing."""


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow, id=", ".join(of)) for of in PLANS]
)
def test_states_are_rounded_as_one_process_rounds_them(of):
    outcome = run_case_and_states(PLANS[of].trial(), silent)
    assert outcome.equal, outcome.to_json()
    assert outcome.states is not None
    assert outcome.states.equal


def test_there_are_plans_enough_for_every_type():
    assert len(PLANS) >= 40
    assert {key for plan in PLANS.values() for key, _ in plan.dtypes} == {
        "gradient",
        "reduce",
        "gather",
        "master",
        "first_moment",
        "second_moment",
    }
