"""Orders of experts: as good as all permutations on small problems, below no bound on large ones."""

from itertools import permutations

import numpy as np
import pytest
from synthetic_routing import choices, counted, seconds, task_of

from meshwright.placement.expert_order.exhaustive import all_orders, arrangements
from meshwright.placement.expert_order.lower_bound import least_seconds
from meshwright.placement.expert_order.problem import Task
from meshwright.placement.expert_order.solve import solve_expert_order

SMALL = ((4, 1, 2, 1), (4, 2, 4, 2), (6, 2, 3, 1), (6, 3, 6, 2), (7, 2, 7, 7), (8, 2, 4, 2), (8, 3, 4, 4))
SHAPES = ((6, 3, 6, 2), (12, 3, 6, 3), (16, 2, 8, 2))


@pytest.mark.parametrize("shape", SMALL)
def test_exact_orders_equal_brute_force(shape):
    task = task_of(np.random.default_rng(sum(shape)), *shape, layers=9)
    found, every = solve_expert_order(task), np.array(list(permutations(range(shape[0]))))
    assert found.exact
    assert found.gap == 0
    for layer in range(task.layers):
        best = seconds(task.meeting(every, np.full(len(every), layer))).min()
        assert found.seconds[layer] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("experts", "ranks", "nodes"), [(4, 2, 1), (6, 6, 2), (8, 4, 2), (9, 3, 3)])
def test_every_arrangement_comes_once(experts, ranks, nodes):
    orders = all_orders(experts, ranks, nodes)
    size, per_node = experts // ranks, ranks // nodes
    alike = {
        frozenset(
            frozenset(frozenset(rank) for rank in node) for node in order.reshape(nodes, per_node, size)
        )
        for order in orders
    }
    assert len(alike) == len(orders) == arrangements(experts, ranks, nodes)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_walks_are_between_the_bound_and_the_numbering(shape):
    task = task_of(np.random.default_rng(7), *shape, layers=3)
    found = solve_expert_order(task, most=0)
    assert not found.exact
    assert (np.sort(found.orders, axis=1) == np.arange(shape[0])).all()
    assert (found.seconds <= found.as_numbered_s).all()
    assert (least_seconds(task) <= found.seconds * (1 + 1e-12)).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SMALL[1::3][::-1], ids=str)
def test_walks_find_the_best_of_few(shape):
    task = task_of(np.random.default_rng(3), *shape, layers=4)
    best = solve_expert_order(task)
    assert (least_seconds(task) <= best.seconds * (1 + 1e-12)).all()
    walked = solve_expert_order(task, most=0)
    assert walked.seconds == pytest.approx(best.seconds, rel=1e-2)
    assert (solve_expert_order(task, most=0).orders == walked.orders).all()


def test_a_hidden_partition_is_found():
    """Tokens choose two of the four experts of one cluster, all alike: each node has one."""
    rng = np.random.default_rng(5)
    hidden = rng.permutation(32).reshape(8, 4)
    tokens = np.zeros((2000, 32))
    for row in tokens:
        row[rng.permutation(hidden[rng.integers(8)])[:2]] = 1
    found = solve_expert_order(Task(*counted([tokens]), 2, 16, 8, seconds))
    nodes = {frozenset(node) for node in found.orders[0].reshape(8, 4).tolist()}
    assert nodes == {frozenset(cluster) for cluster in hidden.tolist()}
    assert found.meeting.nodes[0] == pytest.approx(1)
    assert found.as_numbered.nodes[0] > 1.5


def test_load_alone_is_evened_out():
    """Nothing is known of pairs: popular experts go apart."""
    singles = np.array([[0.5, 0.5, 0.3, 0.3, 0.1, 0.1, 0.1, 0.1]])
    found = solve_expert_order(Task(singles, np.zeros((1, 8, 8)), 2, 4, 1, lambda meeting: meeting.busiest))
    assert found.as_numbered.busiest[0] == pytest.approx(2)
    assert found.meeting.busiest[0] == pytest.approx(1.2)


def test_what_is_counted_of_an_order_is_what_tokens_do():
    """Two choices: singles and pairs say exactly how many nodes and ranks tokens reach."""
    rng = np.random.default_rng(11)
    made = choices(rng, 12, 2, 500)
    task = Task(*counted([made]), 2, 6, 3, seconds)
    order = rng.permutation(12)[None]
    met = [(made[:, order[0]].reshape(500, parts, -1).sum(2) > 0).sum(1).mean() for parts in (3, 6)]
    found = task.meeting(order, np.zeros(1, dtype=int))
    assert [found.nodes[0], found.ranks[0]] == pytest.approx(met)
    assert found.busiest[0] == pytest.approx(
        made[:, order[0]].reshape(500, 6, 2).sum((0, 2)).max() / (1000 / 6)
    )
