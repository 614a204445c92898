"""Plans that are run and held against plain PyTorch: a seeded covering set, what a draw may miss, and faults."""

from dataclasses import replace

import pytest
from covering_plans import (
    BY_UNIT,
    LATE,
    MIXED,
    SPECIAL,
    SPREAD,
    SPREADS,
    THREE,
    TURNED,
    TWICE,
    UNITS,
    covering_plans,
    spread_plans,
    told,
)
from fault_cases import FAULTS
from offloaded_plans import OFFLOADS

from meshwright.runtime.state.sharded_unit import Unit
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import no_fault, run_case

QUICK = [*covering_plans("quick", (2, 4), 12), *spread_plans("quick", (2, 4), 3)]
PLANS = [*SPECIAL, *TURNED, *TWICE, *UNITS, *MIXED, *SPREADS, *LATE, *OFFLOADS, *QUICK]
QUICK_FAULTS = FAULTS[::12]
"""`benchmarks/verify.py` puts in all of them."""


def outcome_of(plan, fault=no_fault):
    return run_case(plan.trial(), lambda what, part: None, fault)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.model} {told(plan)}")
def test_a_plan_computes_and_exchanges_what_it_should(plan):
    outcome = outcome_of(plan)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("fault", QUICK_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_seen(fault):
    outcome = outcome_of(fault.plan, fault.put_in)
    assert fault.is_seen(outcome), outcome


def nan_in_what_is_freed():
    free = Unit.free

    def spoil(self):
        if self.layout.parts > 1 and self.whole is not None:
            self.whole.fill_(float("nan"))
        free(self)

    Unit.free = spoil


SHARDED_SHARES = replace(SPREAD, dp_shard=2, sharding="zero3", gather="per-step", vocabulary="vocab-2")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plan", [SPECIAL[0], SPECIAL[2], BY_UNIT, THREE, SHARDED_SHARES], ids=told)
def test_nothing_holds_parameters_that_were_freed(plan):
    assert plan.sharding == "zero3"
    assert outcome_of(plan, nan_in_what_is_freed).equal
