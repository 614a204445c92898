"""Rules on the order of nodes."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan

from meshwright.cluster.cluster import Links, Tier
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.rules.check_plan import check_plan

ORDER = (1, 0, 2, 3, 4, 5, 6, 7)
LINKS = Links(shares=((1.0,) * 8,) * 8)


def problems(order, devices=64, layout=None, **facts):
    plan = long_plan({**(layout or {"pp": 4, "dp_shard": 8, "tp": 2}), "node_order": order})
    return check_plan(plan, graph(DENSE), replace(cluster(devices), **facts), STACK)


@pytest.mark.parametrize(
    "facts", [{"links": LINKS}, {"tiers": (Tier(name="pod", devices=16, oversubscription=2),)}]
)
def test_nodes_that_links_or_tiers_tell_apart_have_an_order(facts):
    assert problems(ORDER, **facts) == []
    assert problems(None, **facts) == []


def test_an_order_that_changes_nothing_is_told_so():
    (problem,) = problems(ORDER)
    assert problem.severity == "warning"
    assert "links or tiers in the cluster file" in problem.suggestion
    assert problems(tuple(range(8))) == []


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 2, 3, 4, 5, 6, 6), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_every_node_is_named_once(order):
    (problem,) = problems(order, links=LINKS)
    assert (problem.field, problem.value) == ("layout.node_order", list(order))
    assert problem.rule == "must name each of the nodes 0 to 7 once: 64 devices, 8 a node"


def test_nodes_that_are_not_full_can_not_change_places():
    (problem,) = problems((1, 0), 12, {"pp": 3, "dp_shard": 4})
    assert problem.rule == "12 devices do not fill nodes of 8, and only full ones can change places"


def test_the_order_is_in_both_forms_of_a_plan():
    plan = long_plan({"pp": 4, "dp_shard": 8, "tp": 2, "node_order": ORDER})
    assert plan.layouts["main"].node_order == ORDER
    short = shorten(plan)
    assert short is not None
    assert expand(short, DENSE) == plan
    for form in (plan, short):
        assert parse_plan(dump_plan(form)) == form
