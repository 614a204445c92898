"""Orders of nodes: exact against all permutations, annealed against exact, bounded from below, never a worse one."""

from dataclasses import replace
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from random_node_orders import random_fabric, random_task

from meshwright.cluster.cluster import Tier
from meshwright.placement.node_order.exhaustive import alike_nodes, all_orders, arrangements
from meshwright.placement.node_order.lower_bound import least_slowdowns
from meshwright.placement.node_order.nearest_first import near_together
from meshwright.placement.node_order.problem import least_slow
from meshwright.placement.node_order.solve import solve_node_order
from meshwright.program.layouts.node_hops import Fabric

NEAR = 0.02
"""Walks of this length come so near to the best order of up to 8 nodes, relatively."""


def of_all(task):
    """The shortest step of all permutations, each priced by itself."""
    orders = np.array(list(permutations(range(task.places))))
    slowdowns = task.slowdowns(orders)
    return min(task.step_s(row) for row in slowdowns)


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("seed", range(120))
def test_exact_is_the_best_of_all_permutations(seed):
    task = random_task(seed)
    found, best = solve_node_order(task), of_all(task)
    assert found.exact
    assert found.step_s == pytest.approx(best, rel=1e-9)
    assert found.step_s == pytest.approx(task.step_s(task.slowdowns(np.array([found.order]))[0]), rel=1e-12)
    assert found.step_s <= found.as_listed_s


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(25))
def test_walks_come_near_the_best(seed):
    task = random_task(seed + 500, sizes=(6, 8))
    exact, found = solve_node_order(task), solve_node_order(task, most=0)
    assert sorted(found.order) == list(range(task.places))
    assert exact.step_s * (1 - 1e-12) <= found.step_s <= exact.step_s * (1 + NEAR)
    assert found.bound_s <= exact.step_s * (1 + 1e-12)
    assert found.step_s <= found.as_listed_s
    assert found.gap >= found.step_s / exact.step_s - 1 - 1e-12


@pytest.mark.parametrize("seed", range(40))
def test_a_faster_link_never_makes_the_best_order_worse(seed):
    task, rng = random_task(seed + 2000), np.random.default_rng(seed)
    quicker = task.fabric.slowness.copy()
    one, other = rng.choice(task.places, 2, replace=False)
    quicker[one, other] = quicker[other, one] = max(1.0, quicker[one, other] * rng.uniform(0.1, 1))
    better = replace(task, fabric=replace(task.fabric, slowness=quicker))
    assert solve_node_order(better).step_s <= solve_node_order(task).step_s * (1 + 1e-12)


def test_the_same_seed_gives_the_same_order():
    task = random_task(7, sizes=(12,))
    assert solve_node_order(task, seed=3, most=0) == solve_node_order(task, seed=3, most=0)


@pytest.mark.parametrize("seed", range(60))
def test_no_order_is_below_the_bound(seed):
    task = random_task(seed + 1000, sizes=(4, 5, 6))
    orders = np.array(list(permutations(range(task.places))))
    assert (task.slowdowns(orders) >= least_slowdowns(task) - 1e-12).all()


def test_an_order_that_can_not_be_bettered_is_kept():
    alike = Fabric(np.ones((6, 6)), 2)
    task = random_task(3, sizes=(6,))
    found = solve_node_order(type(task)(alike, task.groups, task.step_s))
    assert found.order == tuple(range(6))
    assert found.exact
    assert (found.gained, found.gap, found.changes) == (0, 0, False)


def test_nodes_of_one_kind_are_interchangeable():
    rates = np.full((6, 6), 0.1)
    rates[:4, :4] = rates[4:, 4:] = 1.0
    kinds = alike_nodes(Fabric(1 / rates, 2))
    assert kinds.tolist() == [0, 0, 0, 0, 1, 1]
    assert arrangements(kinds) == 15 == len(all_orders(kinds))
    assert {tuple(kinds[order]) for order in all_orders(kinds)} == set(permutations(kinds.tolist()))
    pods = Fabric(np.ones((4, 4)), 2, (Tier(name="pod", devices=4, oversubscription=2),))
    assert alike_nodes(pods).tolist() == [0, 0, 1, 1]


def test_nodes_that_all_differ_have_all_orders():
    kinds = alike_nodes(Fabric(1 / np.random.default_rng(1).uniform(0.1, 1, (5, 5)), 2))
    assert arrangements(kinds) == factorial(5)
    assert sorted(map(tuple, all_orders(kinds))) == sorted(permutations(range(5)))


def test_rows_that_no_other_is_below():
    rows = np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0], [2.0, 3.0], [1.0, 3.0]])
    assert sorted(least_slow(rows).tolist()) == [0, 1, 2]


def test_near_nodes_stand_together():
    kind = np.array([0, 1, 0, 1, 1, 0])
    rates = np.where(kind[:, None] == kind[None], 1.0, 0.1)
    assert near_together(Fabric(1 / rates, 2)) == (0, 2, 5, 1, 3, 4)
    assert near_together(Fabric(np.ones((5, 5)), 2)) == (0, 1, 2, 3, 4)
    assert sorted(near_together(random_fabric(np.random.default_rng(2), 7))) == list(range(7))
