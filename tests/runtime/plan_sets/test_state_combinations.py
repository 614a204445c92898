"""Plans in which types of states, optimizers, adapters and shares on the host meet one another and every axis."""

import pytest
from ledger_check import ledger_differences
from state_combinations import (
    MOST_RANKS,
    PLAIN,
    REFUSED,
    chosen_levels,
    combinations_of_states,
    crossed,
    every_pair,
    in_words,
    pairs_of,
)

from meshwright.errors import PlanError
from meshwright.runtime.verify.run_state_case import run_case_and_states

PLANS = {in_words(levels): plan for levels, plan in combinations_of_states()}
QUICK = (
    "lora on int8, zb-h1, zero3 by micro-batch",
    "zo-sgd, replicas",
    "fp8 second moment, the parameters",
)


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=() if words in QUICK else pytest.mark.slow) for words in PLANS]
)
def test_combinations_compute_what_one_process_computes_and_hold_what_the_ledger_counts(words):
    trial = PLANS[words].trial()
    outcome = run_case_and_states(trial, lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert not outcome.doubtful, outcome.to_json()
    assert ledger_differences(trial) == []


def test_every_pair_is_in_a_plan_or_refused():
    seen = set().union(*map(pairs_of, chosen_levels()))
    assert seen | REFUSED.keys() == set(every_pair())
    assert not seen & REFUSED.keys()


def test_there_are_plans_enough():
    assert len(PLANS) == len(chosen_levels()) >= 40
    assert max(plan.ranks for plan in PLANS.values()) == MOST_RANKS


@pytest.mark.slow
def test_each_refused_pair_is_refused_by_name():
    for pair, reason in REFUSED.items():
        replicas = {"sharding": "replicas"} if ("optimizer", "zo-sgd split") in pair else {}
        with pytest.raises(PlanError) as refused:
            crossed("llama", PLAIN | replicas | dict(pair)).lowered(stack_binds=True)
        assert reason in str(refused.value), (sorted(pair), str(refused.value))


@pytest.mark.slow
def test_each_plan_is_within_the_limits_of_the_runtime():
    for plan in PLANS.values():
        plan.lowered(stack_binds=True)
