"""Both losses, the projected gradient, parameters and exchanges of plans without backward passes."""

import pytest
from forward_only_plans import PLANS, QUICK

from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.run_state_case import run_case_and_states


def silent(what, part):
    """Show nothing."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PLANS]
)
def test_a_plan_computes_what_one_process_computes(name):
    outcome = run_case_and_states(PLANS[name].trial(), silent)
    assert outcome.caught_by == (), outcome
    assert not outcome.doubtful, outcome


def other_noise():
    """Rank 1 takes noise of another seed."""
    from meshwright.runtime.state import forward_only_states

    usual = forward_only_states.noise_key
    forward_only_states.noise_key = lambda seed, step, name: usual(seed, step, name + "!")


def test_other_noise_is_seen():
    outcome = run_case(PLANS["one device"].trial(), silent, other_noise)
    assert {"loss", "gradients", "parameters"} <= set(outcome.caught_by)
