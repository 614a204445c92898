"""Constraint programming: equal to brute force where that ends, and the proofs that only it has."""

from dataclasses import replace

import pytest
from brute_force import shortest_of_all
from hypothesis import given, settings
from hypothesis import strategies as st
from random_pipelines import pipelines, tasks, unit_pipeline

from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.solve import Effort, SolverInput, solve, solve_task
from meshwright.schedules.solve.constraint_programming import memory_in_whole
from meshwright.schedules.solve.initial_schedules import split_orders
from meshwright.schedules.stage_times import StageTimes

TINY = ((2, 2, 1), (3, 2, 1), (2, 3, 1), (1, 2, 2), (2, 1, 2))
EXACT = Effort(seconds=60, steps=50, method="exact")


@settings(deadline=None, max_examples=12)
@given(pipelines(TINY))
def test_it_finds_the_shortest_lists_of_all(pipeline):
    pytest.importorskip("ortools")
    found = solve(pipeline, EXACT)
    assert found.proven
    assert found.makespan == shortest_of_all(SolverInput.of(pipeline))
    assert not check_lists(found.lists, memory_limit=pipeline.memory_limit, kept=pipeline.times.kept)


@settings(deadline=None, max_examples=4)
@given(tasks(TINY))
def test_and_of_stages_that_hold_unequally_much_with_either_goal(task):
    """W that takes no time holds nothing in a model that has memory for so long: here each takes some."""
    pytest.importorskip("ortools")
    times = task.pipeline.times
    some = replace(times, weight=tuple(seconds or 1 for seconds in times.weight))
    task = replace(task, pipeline=replace(task.pipeline, times=some))
    found = solve_task(task, EXACT)
    assert found.proven
    assert found.makespan == shortest_of_all(task)
    assert task.keeps(split_orders(found.lists, task.pipeline.stages))


@pytest.mark.parametrize(
    ("micro_batches", "limit", "forward", "inputs", "weight", "shortest"),
    [(3, 4, (3, 3), (0, 0), (1, 1), 14), (2, 6, (1, 3, 1), (1, 1, 1), (3, 1, 1), 16)],
)
def test_passes_of_a_kind_may_follow_each_other_at_once(
    micro_batches, limit, forward, inputs, weight, shortest
):
    pytest.importorskip("ortools")
    pipeline = unit_pipeline(len(forward), micro_batches, limit)
    pipeline = replace(pipeline, times=StageTimes(forward, inputs, weight))
    assert shortest_of_all(SolverInput.of(pipeline)) == shortest
    found = solve(pipeline, EXACT)
    assert found.proven
    assert found.makespan == shortest


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 2), (2, 4), (3, 6), (4, 4), (4, 8)])
@pytest.mark.parametrize("limit", [1, 2])
def test_unit_times_are_proven(ranks, micro_batches, limit):
    pytest.importorskip("ortools")
    found = solve(unit_pipeline(ranks, micro_batches, 2 * limit * ranks), EXACT)
    assert found.proven
    assert found.makespan == 3 * micro_batches + (
        ranks - 1 if limit == 1 else max(0, _missing(ranks, micro_batches))
    )


def _missing(ranks, micro_batches):
    """Forward passes that there are not, of those that would fill the wait for the first input gradient."""
    return 2 * ranks - 1 - micro_batches


def test_proofs_go_beyond_the_bounds():
    pytest.importorskip("ortools")
    pipeline = unit_pipeline(4, 8, 4)
    local = solve(pipeline, Effort(steps=50, method="local"))
    assert not local.proven
    found = solve(pipeline, EXACT)
    assert (found.proven, found.makespan) == (True, 41)
    assert found.bound > local.bound


@given(
    st.sampled_from([0.0, 0.25, 0.3, 0.5, 1 / 3, 32 / 37, 0.864, 1.0]) | st.floats(0, 1),
    st.integers(1, 40).map(lambda half: half / 2),
    st.integers(1, 200),
)
def test_whole_numbers_allow_the_same(kept, limit, most):
    whole, left, capacity = memory_in_whole(limit, kept, most)
    for waiting in range(min(most, int(limit)) + 1):
        for weights in range(0, most + 1, max(1, most // 20)):
            fits = waiting + kept * weights <= limit + 1e-9
            assert (waiting * whole + weights * left <= capacity) == fits
