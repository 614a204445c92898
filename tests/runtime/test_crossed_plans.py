"""Every schedule with uneven stages, tied tables, states, tensors, recomputation and spread vocabularies."""

import pytest
from crossed_plans import LEVELS, one_by_one, pair_by_pair, schedules
from proof_plans import told
from some_plans import some_first

from meshwright.runtime.verify.outcome import DOUBTFUL
from meshwright.runtime.verify.trial import Trial
from meshwright.runtime.verify.tried import tried
from meshwright.schedule import SCHEDULES

SOME = 30
"""The first plans meet most pairs, with every schedule among them."""


def named(plan):
    return f"{plan.model} {told(plan)}"


def equal_to_one_device(plan):
    outcome = tried(Trial(*plan.lowered()), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.parametrize("plan", some_first(pair_by_pair(), SOME))
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
