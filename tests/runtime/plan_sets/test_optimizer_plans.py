"""Plans with other optimizers than AdamW compute what one process computes, with wide states and with narrow ones."""

import pytest
from optimizer_plans import CUTS, OPTIMIZERS, PLANS, QUICK

from meshwright.runtime.verify.run_state_case import run_case_and_states


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow, id=", ".join(of)) for of in PLANS]
)
def test_other_optimizers_compute_what_one_process_computes(of):
    outcome = run_case_and_states(PLANS[of].trial(), lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert (outcome.states is None) == (not PLANS[of].dtypes)


def test_every_optimizer_meets_every_cut():
    assert {(optimizer, cut) for optimizer, _, cut in PLANS} == {(o, c) for o in OPTIMIZERS for c in CUTS}
    assert len(PLANS) >= 15
