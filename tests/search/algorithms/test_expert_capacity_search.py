"""Searches of workloads whose experts have a capacity."""

from dataclasses import replace

import pytest
from small_questions import asked, best_of_kinds

from meshwright.cost.closed_form.evaluate_plans import evaluate
from meshwright.cost.memory.memory_breakdown import fits
from meshwright.verbs.plan.search_space import search, search_scope, searched_space
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.expert_routing import Routing

TOP = 3
CASES = (
    (Routing("balanced"), Capacity(factor=1.3, pad=True, scope="sequence")),
    (None, Capacity(factor=1.0)),
    (Routing(0.7), Capacity(factor=1.1)),
    (Routing(0.7), Capacity(factor=0.6, pad=True)),
    (Routing(1.2), Capacity(factor=0.9, scope="micro-batch")),
)


def bounded(routing, capacity):
    setting = asked("sparse", 8, "meshwright", layers=2, seq_len=128, batch=4, width=1).setting
    return replace(setting, workload=replace(setting.workload, routing=routing, capacity=capacity))


@pytest.mark.slow
@pytest.mark.parametrize(("routing", "capacity"), CASES, ids=str)
def test_the_best_plans_are_those_of_pricing_every_plan(routing, capacity):
    setting = bounded(routing, capacity)
    scope = search_scope({}, None, TOP, setting)
    plans = searched_space(scope, setting).plans
    every = evaluate(plans, setting)
    fit = fits(every.total_bytes, setting.cluster) & every.hosts_hold
    _, found = search(scope, setting)
    wanted = best_of_kinds(plans, every.step_s, fit)[:TOP]
    assert best_of_kinds(found.plans, found.step_s, found.fits)[:TOP] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("scope", ["rank", "sequence", "micro-batch"])
@pytest.mark.parametrize("pad", [False, True])
def test_ranks_that_share_a_scope_do_not_pad(scope, pad):
    setting = bounded(None, Capacity(factor=1.0, scope=scope, pad=pad))
    plans = searched_space(search_scope({}, None, TOP, setting), setting).plans
    alone = (plans.cp * plans.tp == 1).all()
    assert alone == (pad and scope != "rank")
