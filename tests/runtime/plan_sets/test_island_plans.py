"""Plans that synchronise compute what virtual islands in one process compute, and exchange the Program's bytes."""

import pytest
from island_plans import CUTS, PLANS, QUICK, SYSTEMS, island_plan

from meshwright.runtime.verify.run_case import run_case


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of in QUICK else pytest.mark.slow, id=", ".join(of)) for of in PLANS]
)
def test_islands_compute_what_one_process_computes(of):
    outcome = run_case(island_plan(*of).trial(), lambda what, part: None)
    assert outcome.equal, outcome.to_json()
    assert not outcome.doubtful
    for entry in outcome.exchanges:
        assert entry.exchanges >= 2
        assert entry.logged == entry.predicted
        assert sum(size * number for (*_, size), number in entry.logged.items()) > 0
    assert outcome.exchanges


def test_there_are_plans_for_every_system_and_cut():
    assert set(QUICK) <= set(PLANS)
    assert {system for system, _ in PLANS} == set(SYSTEMS)
    assert {cut for _, cut in PLANS} == {cut for _, cut in QUICK} == set(CUTS)
    assert len(PLANS) >= 100
    assert all(len(set(cuts)) >= 3 for cuts in ([c for s, c in PLANS if s == system] for system in SYSTEMS))
