"""Closed forms of plans with several layouts against their simulated Programs: memory exactly, time within 3 %."""

from itertools import islice

import pytest
from layout_draws import drawn_plans
from plan_comparison import TIME_BOUND

from meshwright.cost.closed_form.layout_groups import layout_group
from meshwright.cost.plan_report import group_estimate
from meshwright.simulate.memory_ledger import rank_ledger
from meshwright.simulate.plan_estimate import lower_and_simulate

SOME, ALL = 12, 320


@pytest.mark.parametrize("count", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
def test_plans_with_several_layouts_equal_their_simulation(count):
    errors = []
    for plan in islice(drawn_plans("layouts"), count):
        program, simulated = lower_and_simulate(plan.long, plan.setting)
        ledgers = [rank_ledger(program, rank, plan.setting.cluster) for rank in range(program.pipeline_ranks)]
        found = group_estimate(layout_group(plan.long, plan.setting))
        assert list(found.ledgers) == ledgers, plan.long
        errors.append(sum(found.parts.values()) / simulated.step_s - 1)
        assert abs(errors[-1]) < TIME_BOUND, plan.long
    print(f"largest error of {count} step times {max(errors, key=abs):+.2%}")
