"""Paths found by conflicts: as fast as brute force, and without conflicts."""

from collections import Counter
from math import inf

import pytest
from brute_force_paths import fastest
from drawn_problems import drawn_problem

from meshwright.simulate.churn.paths.conflict_search import search_paths
from meshwright.simulate.churn.paths.path_conflicts import collisions, first_conflict
from meshwright.simulate.churn.paths.path_dispatch import dispatched
from meshwright.simulate.churn.paths.path_problem import PathProblem, first_allowed
from meshwright.simulate.churn.paths.path_repair import repaired_paths

SLOW_BRUTE_FORCE = {5, 6, 17, 29, 33, 38}
"""Seeds whose brute force takes seconds; `make stragglers` has them, too."""


@pytest.mark.parametrize("seed", sorted(set(range(32)) - SLOW_BRUTE_FORCE))
def test_the_search_equals_brute_force(seed):
    problem = drawn_problem(seed)
    found = search_paths(problem)
    if found is None:
        assert fastest(problem) == inf
        return
    assert found.optimal
    assert fastest(problem, 1.000001 * found.makespan_s) == pytest.approx(found.makespan_s, rel=1e-9)
    assert not first_conflict(problem, found.timed)


@pytest.mark.parametrize("seed", range(10))
def test_repaired_paths_have_no_conflicts(seed):
    problem = drawn_problem(seed)
    timed = repaired_paths(problem, seed)
    assert not timed or (not collisions(timed) and not first_conflict(problem, timed))


def test_two_micro_batches_take_different_nodes_and_share_the_first():
    problem = PathProblem(
        stage_of=(0, 1, 1),
        forward_s=(1.0, 2.0, 2.0),
        backward_s=(1.0, 2.0, 2.0),
        message_s=((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)),
        starts=(0, 0),
        visits=2,
        memory=1,
    )
    found = search_paths(problem)
    assert found.makespan_s == 9.0
    assert Counter(path.path for path in found.timed) == {(0, 1): 1, (0, 2): 1}


def test_a_swap_visits_the_stage_right_before_the_furthest():
    problem = PathProblem(
        stage_of=(0, 1, 2, 3),
        forward_s=(1.0,) * 4,
        backward_s=(1.0,) * 4,
        message_s=((1.0,) * 4,) * 4,
        starts=(0,),
        visits=4,
        swaps=1,
    )
    assert {path.path for path in problem.paths(0)} == {(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)}


def test_a_problem_without_paths_has_no_answer():
    problem = PathProblem(
        stage_of=(0, 1),
        forward_s=(1.0,) * 2,
        backward_s=(1.0,) * 2,
        message_s=((0.0,) * 2,) * 2,
        starts=(0,),
        visits=3,
    )
    assert search_paths(problem) is None


def test_a_pass_begins_after_forbidden_times():
    assert first_allowed(1.0, [(2.0, 3.0), (0.5, 2.5)]) == 3.0
    assert first_allowed(3.0, [(2.0, 3.0)]) == 3.0


@pytest.mark.parametrize("seed", range(10))
def test_dispatched_paths_keep_their_order_and_meet_nobody(seed):
    problem = drawn_problem(seed)
    paths = [problem.paths(at)[0].path for at in problem.micro_batches]
    timed = dispatched(problem, paths)
    assert [one.path for one in timed] == paths
    assert not collisions(timed)
    for at, one in enumerate(timed):
        assert one.end_s >= problem.paths(at)[0].end_s - 1e-9
        assert [visit.kind for visit in one.visits] == [
            visit.kind for visit in problem.timed(at, one.path).visits
        ]
