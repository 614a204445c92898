"""Ranks and lists for branches: legal, within memory, never longer than a chain, the best of all where they say so."""

from dataclasses import replace

import pytest
from brute_force_assignments import shortest_of_all
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_operator_graphs import SOON, equal, graphs, tasks, two_branches

from meshwright.errors import InfeasibleError
from meshwright.program.pipeline_messages.branch_deadlock_check import check_branch_messages
from meshwright.schedules.solve import Effort
from meshwright.search.operator_graph import Task, solve
from meshwright.search.operator_graph.graph import one_each
from meshwright.search.operator_graph.lower_bound import lower_bound
from meshwright.search.operator_graph.problem import UNPLAYABLE

EXACT = Effort(seconds=60, steps=60, method="exact")
SLOWLY = settings(deadline=None, max_examples=9, suppress_health_check=[HealthCheck.too_slow])


@SLOWLY
@given(tasks(most=10, sizes=((2, 3), (3, 4), (4, 2))))
def test_answers_are_legal_and_no_longer_than_the_best_chain(task):
    try:
        found = solve(task, SOON)
    except InfeasibleError:
        assert task.memory is not None
        return
    answer = found.answer
    assert answer.problems() == []
    assert not check_branch_messages(answer.lists, answer.placement, answer.graph.ways)
    assert answer.fits
    assert found.bound.step <= answer.step < UNPLAYABLE
    assert sorted(operator for group in answer.groups for operator in group) == [
        *range(len(task.graph.costs))
    ]
    if found.chain:
        assert found.chain.answer.problems() == []
        assert answer.step <= found.chain.answer.step <= found.chain.step


@SLOWLY
@given(tasks(most=4, sizes=((2, 1), (2, 2), (2, 3), (3, 2))))
def test_the_exact_answer_is_the_shortest_of_all(task):
    pytest.importorskip("ortools")
    try:
        found = solve(task, EXACT)
    except InfeasibleError:
        assert shortest_of_all(task, UNPLAYABLE) == UNPLAYABLE
        return
    assert found.proven
    assert shortest_of_all(task, found.answer.step + 1) == found.answer.step


@settings(deadline=None, max_examples=36, suppress_health_check=[HealthCheck.too_slow])
@given(tasks(most=4, sizes=((2, 1), (2, 2), (2, 3), (3, 1), (3, 2))))
def test_no_lists_of_all_are_below_the_bound(task):
    task = replace(task, memory=None)
    found = solve(task, Effort(seconds=60, steps=20, method="local"))
    assert found.bound.step <= shortest_of_all(task, found.answer.step + 1) <= found.answer.step


def test_few_micro_batches_are_waited_for_at_both_ends():
    """Two micro-batches in a row of operators: four ranks share the work, and of F and I two run at once at most."""
    row = equal(8, [(stage, stage + 1) for stage in range(7)], ticks=3)
    for count, ranks, step in ((1, 4, 51), (2, 4, 53), (4, 4, 79), (8, 4, 149)):
        bound = lower_bound(Task(row, ranks, count))
        shared = -(-(count * row.work + sum(3 * rank for rank in range(ranks))) // ranks)
        assert bound.step >= shared
        assert bound.step == step


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("message", "memory"), [(1, 40), (0, None), (1, None)])
def test_five_operators_on_two_ranks_are_proven(message, memory):
    pytest.importorskip("ortools")
    graph = two_branches(2, 1, message)
    costs = tuple(cost._replace(kept=4, left=2, state=3) for cost in graph.costs)
    task = Task(type(graph)(costs, graph.edges), 2, 3, memory)
    found = solve(task, EXACT)
    assert found.proven
    assert shortest_of_all(task, found.answer.step + 1) == found.answer.step


def test_two_equal_branches_run_beside_each_other():
    """Two operators and one that joins them, a rank each: a chain would be two messages deep, this is one."""
    found = solve(Task(two_branches(1, 1), 3, 1), SOON)
    assert (found.answer.step, found.proven) == (5, True)
    assert found.chain.step == 7
    ranks = found.answer.placement
    assert ranks[0] != ranks[1]


def test_a_chain_gains_nothing_over_the_best_chain_where_that_is_proven():
    found = solve(
        Task(equal(4, [(0, 1), (1, 2), (2, 3)]), 4, 8), Effort(seconds=5, steps=200, method="local")
    )
    assert found.answer.step <= found.chain.step
    assert found.chain.answer.step == found.chain.step


def test_equal_steps_and_seeds_give_equal_lists():
    task = Task(two_branches(6, 3, 1), 3, 4)
    effort = Effort(seconds=3600, steps=80, method="local")
    first, second = (solve(task, effort) for _ in range(2))
    assert first.answer.orders == second.answer.orders
    assert first.answer.groups == second.answer.groups


def test_a_coarse_answer_is_not_called_proven_by_the_solver():
    pytest.importorskip("ortools")
    task = Task(two_branches(6, 3, 1), 2, 2)
    found = solve(task, Effort(seconds=5, steps=50, method="exact"))
    assert found.coarse < len(one_each(task.graph))
    assert found.bound.reason != "constraint programming"


def test_too_little_memory_is_infeasible():
    graph = two_branches(1, 1)
    costs = tuple(cost._replace(kept=4, state=3) for cost in graph.costs)
    with pytest.raises(InfeasibleError) as refused:
        solve(Task(type(graph)(costs, graph.edges), 3, 2, 6), SOON)
    assert "take 21 bytes, 7 for each of 3 ranks" in refused.value.reasons[0]


@given(graphs(most=8), st.integers(1, 4), st.integers(1, 4))
@settings(deadline=None, max_examples=9)
def test_the_bound_is_the_work_of_a_single_rank(graph, micro_batches, seed):
    found = solve(Task(graph, 1, micro_batches), Effort(seconds=60, steps=5, seed=seed, method="local"))
    assert found.proven
    assert found.answer.step == micro_batches * graph.work
