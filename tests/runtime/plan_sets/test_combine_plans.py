"""Plans that combine gradients compute what one process computes, and exchange the Program's bytes."""

import pytest
from combine_plans import CODES, PLANS, QUICK, RULES, THREE, combine_plan

from meshwright.runtime.verify.run_case import run_case


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow, id=", ".join(of)) for of in PLANS]
)
def test_ranks_combine_what_one_process_combines(of):
    outcome = run_case(combine_plan(*of).trial(), lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert not outcome.doubtful
    (entry,) = outcome.exchanges
    assert entry.exchanges == 3
    assert entry.logged == entry.predicted
    assert entry.logged_bytes > 0
    assert outcome.from_exact.value < 1e-9 if of[0] in CODES else outcome.from_exact.value > 1e-6


def test_there_are_plans_for_every_rule_and_cut():
    assert set(QUICK) <= set(PLANS)
    assert {rule for rule, _ in QUICK} == set(RULES)
    assert {cut for _, cut in PLANS} == set(THREE)
    assert len(PLANS) >= 20
