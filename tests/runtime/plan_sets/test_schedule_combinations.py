"""Every schedule with uneven stages, tied tables, states, tensors, recomputation and spread vocabularies."""

import pytest
from covering_plans import told
from schedule_combinations import LEVELS, one_by_one, pair_by_pair, schedules

from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.schedules.generators import SCHEDULES

"""The first plans meet most pairs, with every schedule among them."""


def named(plan):
    return f"{plan.model} {told(plan)}"


def equal_to_one_device(plan):
    outcome = run_case(VerifyCase(*plan.lowered()), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", pair_by_pair(), ids=named)
def test_pairs_of_choices_together(plan):
    equal_to_one_device(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(one_by_one()), ids=named)
def test_each_choice_alone(plan):
    equal_to_one_device(plan)


def test_every_schedule_that_there_is_stands_in_both():
    assert set(schedules()) == set(SCHEDULES)
    assert (
        {plan.schedule for plan in one_by_one()}
        == {plan.schedule for plan in pair_by_pair()}
        == set(SCHEDULES)
    )


def test_each_schedule_meets_each_level_alone():
    alone = sum(len(levels) - 1 for levels in LEVELS.values()) + 1
    for schedule in schedules():
        plans = [plan for plan in one_by_one() if plan.schedule == schedule]
        kind = SCHEDULES[schedule]
        without = 3 if kind.chains > 1 else 0 if schedule == "1f1b" else 1
        assert len(plans) == len(set(plans)) == alone - without
