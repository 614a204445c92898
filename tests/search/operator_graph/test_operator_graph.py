"""Graphs of operators and of groups of them: order, times, messages; coarser graphs; operators that go over."""

from hypothesis import given, settings
from hypothesis import strategies as st
from random_operator_graphs import SOON, equal, graphs, tasks, two_branches

from meshwright.errors import InfeasibleError
from meshwright.search.operator_graph import Cost, Graph, Task, solve
from meshwright.search.operator_graph.best_chain import feasible_chains, rows
from meshwright.search.operator_graph.coarsen import coarsened
from meshwright.search.operator_graph.graph import in_order, merged, one_each
from meshwright.search.operator_graph.greedy_lists import free_bytes, greedy_lists, usual_styles
from meshwright.search.operator_graph.lower_bound import lower_bound
from meshwright.search.operator_graph.problem import UNPLAYABLE, RanksAndLists
from meshwright.search.operator_graph.refine_borders import refined, regrouped


def test_a_group_has_the_sums_of_its_operators_and_sends_each_output_once():
    costs = tuple(Cost(n, 2 * n, 3 * n, 10 * n, 5 * n, 100 * n) for n in (1, 2, 3, 4))
    graph = Graph(costs, {(0, 1): 5, (0, 2): 7, (0, 3): 1, (1, 3): 2, (2, 3): 4})
    small = merged(graph, ((0,), (1, 2), (3,)))
    assert small.costs[1] == Cost(5, 10, 15, 50, 25, 500)
    assert small.edges == {(0, 1): 7, (0, 2): 1, (1, 2): 6}


def test_groups_that_need_each_other_have_no_order():
    chain = equal(3, [(0, 1), (1, 2)])
    assert in_order(chain, [(0, 2), (1,)]) is None
    assert in_order(chain, [(2,), (1, 0)]) == ((0, 1), (2,))


@given(tasks(most=12), st.integers(1, 6))
def test_coarse_groups_are_few_in_order_and_within_memory(task, most):
    groups = coarsened(task, most)
    graph = merged(task.graph, groups)
    assert all(source < target for source, target in graph.edges)
    assert sorted(operator for group in groups for operator in group) == [*range(len(task.graph.costs))]
    for group, cost in zip(groups, graph.costs, strict=True):
        if len(group) > 1:
            assert task.memory is None or cost.kept + cost.state <= task.memory
            assert task.ranks * cost.work <= graph.work


def test_chains_are_merged_before_branches():
    groups = coarsened(Task(two_branches(4, 4), 2, 2), 3)
    assert set(groups) == {(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)}


def test_twins_are_merged():
    many = equal(6, [(0, n) for n in range(1, 5)] + [(n, 5) for n in range(1, 5)])
    groups = coarsened(Task(many, 1, 2), 3)
    assert (1, 2, 3, 4) in groups


@given(graphs(most=8))
def test_rows_have_every_operator_behind_what_it_needs(graph):
    for row in rows(graph):
        place = {operator: number for number, operator in enumerate(row)}
        assert sorted(row) == [*range(len(graph.costs))]
        assert all(place[source] < place[target] for source, target in graph.edges)


@given(tasks(most=8), st.data())
@settings(deadline=None)
def test_play_keeps_memory_and_ends_on_any_ranks(task, data):
    number = len(task.graph.costs)
    placement = tuple(data.draw(st.lists(st.integers(0, task.ranks - 1), min_size=number, max_size=number)))
    free = free_bytes(task.graph, placement, task.ranks, task.memory)
    if free is None:
        return
    for style in usual_styles(task.graph):
        played = greedy_lists(task.graph, placement, free, task.micro_batches, style)
        answer = RanksAndLists(task, one_each(task.graph), placement, played.orders)
        assert answer.problems() == []
        assert answer.step == played.step >= lower_bound(task).step


def test_an_operator_on_the_wrong_side_goes_over():
    """Six equal operators, one of them on one rank and five on the other: three each are better."""
    task = Task(equal(6, [(n, n + 1) for n in range(5)]), 2, 8)
    groups = ((0,), (1, 2, 3, 4, 5))
    graph = merged(task.graph, groups)
    lists = greedy_lists(graph, (0, 1), free_bytes(graph, (0, 1), 2, None), 8, usual_styles(graph)[0])
    start = RanksAndLists(task, groups, (0, 1), lists.orders)
    better = list(refined(start, lambda: False))[-1]
    assert better.step < start.step
    assert better.groups == ((0, 1, 2), (3, 4, 5))
    assert better.problems() == []


@given(tasks(most=8), st.data())
@settings(deadline=None, max_examples=18)
def test_regrouped_answers_are_legal_or_wait_for_each_other(task, data):
    try:
        answer = solve(task, SOON).answer
    except InfeasibleError:
        return
    groups = [list(group) for group in answer.groups]
    source, target = (data.draw(st.integers(0, len(groups) - 1)) for _ in range(2))
    groups[target].append(groups[source].pop())
    for other in regrouped(answer, groups):
        assert other.fits
        assert (other.step == UNPLAYABLE) == bool(other.problems())


def test_the_chains_of_a_chain_take_as_long_as_a_graph():
    found = list(feasible_chains(Task(equal(4, [(0, 1), (1, 2), (2, 3)], message=1), 2, 4)))
    assert found
    assert all(chain.answer.step <= chain.step for chain in found)
    best = min(found, key=lambda chain: chain.step)
    assert best.answer.step == best.step
