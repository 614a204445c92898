"""Exchanges of units in a simulated step: who waits for them, and what they slow down."""

from dataclasses import replace
from itertools import pairwise

import pytest
from pipeline_programs import lowered

from meshwright.cost.operators.pass_prices import total
from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.conversion import expand
from meshwright.program.checks.per_unit_exchanges import UNIT_KINDS
from meshwright.program.model_states.per_unit_gather_and_reduce import NEED_PARAMETERS
from meshwright.schedules.action import COMPUTE_KINDS
from meshwright.simulate.plan_estimate import estimate
from meshwright.simulate.simulator import simulate

SCHEDULES = ("zeropp", "looped-bfs", "interleaved-1f1b")
ROUNDING = 1e-12


def by_unit(schedule, *, overlapped=True):
    facts = {"overlap_parameter_gather": overlapped, "overlap_gradient_reduction": overlapped}
    plan = {"pp": 2, "dp_shard": 4, "sharding": "zero3", "stack": "meshwright", "gather": "per-unit"}
    return lowered(**plan, schedule=schedule, virtual_stages=4, global_batch=32, **facts)


def overlap(one, other):
    return max(0.0, min(one.end, other.end) - max(one.start, other.start))


def split(records):
    """Passes, and exchanges of states."""
    return (
        [record for record in records if record.action.kind in COMPUTE_KINDS],
        [record for record in records if record.action.kind in UNIT_KINDS],
    )


@pytest.mark.parametrize("overlapped", [True, False], ids=["overlapped", "in line"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pass_waits_for_its_parameters_and_exchanges_follow_each_other(schedule, overlapped):
    plan = by_unit(schedule, overlapped=overlapped)
    for records in plan.simulated().ranks:
        passes, exchanges = split(records)
        assert exchanges
        assert all(a.end <= b.start + ROUNDING for a, b in pairwise(exchanges))
        gathered = {}
        for record in records:
            if record.action.kind == "GATHER":
                gathered[record.action.stage] = record.end
            elif record.action.kind in NEED_PARAMETERS:
                assert record.start >= gathered[record.action.stage] - ROUNDING
        if not overlapped:
            assert all(overlap(one, other) <= ROUNDING for one in passes for other in exchanges)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pass_is_longer_by_a_share_of_what_is_exchanged_beside_it(schedule):
    plan = by_unit(schedule)
    prices = program_prices(plan.program, plan.setting)
    share = prices.local.forms.constants["overlap_slowdown"]
    slowed = 0
    for records in plan.simulated().ranks:
        until = 0.0
        for record in records:
            if record.action.kind in UNIT_KINDS:
                until = record.end
            if record.action.kind not in COMPUTE_KINDS:
                continue
            alone = float(total(prices.body(plan.program.bodies[record.action.stage, record.action.kind])))
            under_way = max(0.0, until - record.start)
            assert record.end - record.start == pytest.approx(alone + share * min(alone, under_way))
            slowed += under_way > 0
    assert slowed


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_exchanges_that_cost_nothing_leave_the_pipeline_alone(schedule):
    plan = by_unit(schedule)
    prices = program_prices(plan.program, plan.setting)
    free = {key: () for key in plan.program.collectives if key[1] in UNIT_KINDS}
    for_free = replace(plan.program, collectives=plan.program.collectives | free)
    lists = tuple(tuple(a for a in row if a.kind not in UNIT_KINDS) for row in plan.program.lists)
    without = replace(plan.program, lists=lists)
    assert simulate(for_free, prices).step_s == pytest.approx(simulate(without, prices).step_s)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_exchanges_add_to_a_step_is_data_parallel_time_and_no_bubble(schedule):
    plans = [by_unit(schedule, overlapped=overlapped) for overlapped in (True, False)]
    overlapped, in_line = (
        estimate(plan_of(plan), plan.setting, plan.program, plan.simulated()).parts for plan in plans
    )
    assert overlapped["bubble"] == pytest.approx(in_line["bubble"])
    assert 0 < overlapped["dp"] < in_line["dp"]


def plan_of(plan):
    return expand(plan.short, plan.setting.model.architecture)
