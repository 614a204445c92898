"""Solutions are schedules, never longer than what the table has, and say truly how far from the shortest they are."""

import signal
from dataclasses import replace

import pytest
from brute_force import shortest_of_all
from hypothesis import given, settings
from random_pipelines import pipelines, tasks, unit_pipeline

from meshwright.errors import InfeasibleError
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import looped_placement, v_placement
from meshwright.schedules.solve import Effort, InitialList, SolverInput, solve, solve_task
from meshwright.schedules.solve.initial_schedules import split_orders
from meshwright.schedules.timeline import played

SHORT = Effort(seconds=60, steps=60, method="local")
TINY = ((2, 2, 1), (3, 2, 1), (2, 3, 1), (1, 2, 2), (2, 1, 2))


@settings(deadline=None, max_examples=40)
@given(pipelines([(2, 4, 1), (4, 8, 1), (3, 5, 2), (2, 6, 3), (1, 3, 1), (5, 1, 2)]))
def test_a_solution_is_a_schedule_between_its_bound_and_its_seed(pipeline):
    found = solve(pipeline, SHORT)
    assert not check_lists(found.lists, memory_limit=pipeline.memory_limit, kept=pipeline.times.kept)
    assert played(found.lists, pipeline.times, StageChains(pipeline.stages)).makespan == found.makespan
    assert found.bound <= found.makespan <= found.seed_makespan
    assert found.proven == (found.bound == found.makespan)


@settings(deadline=None, max_examples=15)
@given(pipelines(TINY))
def test_no_lists_of_all_are_below_the_bound(pipeline):
    found, shortest = solve(pipeline, SHORT), shortest_of_all(SolverInput.of(pipeline))
    assert found.bound <= shortest <= found.makespan
    assert not found.proven or found.makespan == shortest


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(tasks(TINY))
def test_nor_of_stages_that_hold_unequally_much(task):
    found, shortest = solve_task(task, SHORT), shortest_of_all(task)
    assert found.bound <= shortest <= found.makespan <= found.seed_makespan
    timeline = played(found.lists, task.pipeline.times, StageChains(task.pipeline.stages))
    assert found.makespan == (timeline.makespan if task.goal == "makespan" else timeline.latency)
    assert not check_lists(found.lists)
    assert task.keeps(split_orders(found.lists, task.pipeline.stages))


def test_lists_at_hand_are_where_a_search_begins():
    pipeline = unit_pipeline(4, 6, 6)
    found = solve(pipeline, SHORT)
    task = replace(SolverInput.of(pipeline), initial=(InitialList("mine", found.lists),))
    again = solve_task(task, Effort(seconds=60, steps=1, method="local"))
    assert (again.found_by, again.makespan) == ("mine", 24)


def test_it_tells_how_far_it_is():
    told = []
    found = solve_task(SolverInput.of(unit_pipeline(4, 8, 6, 2)), SHORT, told.append)
    assert told[0].makespan == found.seed_makespan
    assert told[-1].makespan == found.makespan
    assert {standing.bound for standing in told} == {found.bound}


@pytest.mark.parametrize(("chunks", "placement"), [(1, v_placement), (2, v_placement), (2, looped_placement)])
@pytest.mark.parametrize("limit", [8, 12])
def test_it_is_never_longer_than_a_schedule_that_fits(chunks, placement, limit):
    pipeline = unit_pipeline(4, 8, limit, chunks, placement)
    found = solve(pipeline, SHORT)
    for kind in SCHEDULES.values():
        if kind.chains == 1 and kind.allows(chunks) and kind.placement(4, chunks) == pipeline.placement:
            lists = kind.lists(4, 8, chunks, pipeline.times, pipeline.knobs)
            if not check_lists(lists, memory_limit=limit):
                assert found.makespan <= played(lists, pipeline.times, StageChains(4 * chunks)).makespan


def test_local_search_finds_lists_that_the_table_lacks():
    found = solve(unit_pipeline(4, 6, 6), SHORT)
    assert (found.seed_makespan, found.makespan, found.found_by, found.proven) == (
        25,
        24,
        "local search",
        True,
    )


def test_equal_seeds_give_equal_lists():
    pipeline = unit_pipeline(4, 8, 6, 2)
    first, second = solve(pipeline, SHORT), solve(pipeline, SHORT)
    assert first == second
    assert first.steps == SHORT.steps


def test_times_may_be_any_numbers():
    pipeline = unit_pipeline(4, 6, 6)
    times = pipeline.times
    tenths = replace(times, forward=(0.1,) * 4, input=(0.1,) * 4, weight=(0.1,) * 4)
    assert solve(replace(pipeline, times=tenths), SHORT).makespan == 2.4
    odd = replace(tenths, forward=(0.1 + 1e-17, 1 / 3, 0.1234567890123456, 0.1))
    found = solve(replace(pipeline, times=odd), SHORT)
    assert found.makespan == pytest.approx(played(found.lists, odd, StageChains(4)).makespan, rel=1e-9)


def test_less_than_one_micro_batch_is_refused():
    with pytest.raises(InfeasibleError, match=r"memory limit 1\.9"):
        solve(unit_pipeline(4, 6, 1.9), SHORT)


def test_an_interrupt_returns_the_best_so_far():
    def interrupt(*_):
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        found = solve(unit_pipeline(4, 8, 4, 2, looped_placement), Effort(seconds=60, method="local"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert found.interrupted
    assert found.makespan <= found.seed_makespan
    assert not check_lists(found.lists, memory_limit=4)
