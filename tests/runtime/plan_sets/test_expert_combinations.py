"""Plans with experts compute what one device does, whatever else meets them."""

import pytest
from covering_plans import told
from expert_combinations import FAMILIES, LEVELS, SPECIAL, balanced, covering, folded

from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case, run_case_with_clipping

TRIPLES = covering()
"""The first plans meet most pairs."""
QUICK = next(plan for plan in TRIPLES if plan.pp == plan.ep == 2 and plan.tp == 1)
"""The plan of every test run: experts and stages over four ranks."""


def named(plan):
    return f"{plan.model} {told(plan)}"


def equal_to_one_device(plan):
    outcome = run_case(plan.trial(), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.parametrize(
    "plan",
    [pytest.param(plan, marks=() if plan is QUICK else pytest.mark.slow) for plan in TRIPLES],
    ids=named,
)
def test_triples_of_choices_together(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(folded()), ids=named)
def test_experts_are_folded_over_data_and_tensor_ranks(plan):
    equal_to_one_device(plan)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", SPECIAL, ids=named)
def test_experts_meet_what_else_a_plan_may_have(plan):
    outcome = run_case_with_clipping(plan.trial(), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", list(balanced()), ids=named)
def test_experts_are_kept_in_balance_as_on_one_device(plan):
    routing = plan.graph().architecture.numerics.routing
    assert routing.balance or routing.correction_speed
    equal_to_one_device(plan)


def test_every_family_and_level_is_in_the_triples():
    plans = TRIPLES
    assert {plan.model for plan in plans} == set(FAMILIES)
    assert {(plan.ep, plan.etp) for plan in plans} == {(1, 1), (2, 1), (1, 2), (2, 2)}
    assert len({plan.recompute for plan in plans}) >= len(LEVELS["recompute"])
    assert max(plan.ranks for plan in plans) == 8
