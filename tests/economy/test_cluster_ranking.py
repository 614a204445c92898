"""Which clusters are beaten, from which time of a step on, and which set nothing beats."""

from math import inf

import pytest
from economy_settings import ASSUMED, setting
from hypothesis import given
from hypothesis import strategies as st

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.budget_and_deadline import Limits
from meshwright.economy.cluster_offers import Offer
from meshwright.economy.cluster_ranking import (
    CLOSE,
    RankedCluster,
    dominated_from_step_s,
    dominating_cluster,
    pareto_front,
)
from meshwright.economy.objectives import OBJECTIVES
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.economy.training_cost import TrainingCost

STEPS = st.floats(0.1, 20.0)
NAMES = ("h100-sxm-80gb x 16", "h100-sxm-80gb x 24", "a100-sxm-80gb x 16", "mi300x x 8")
COURSES = {name: TrainingCost.of(setting(name), TrainingTerms(10**11, ASSUMED)) for name in NAMES}


def stood(name, step_s):
    """A cluster that was searched."""
    course = COURSES[name]
    return RankedCluster(Offer(name, course.setting.cluster), course, "searched", step_s)


@given(
    steps=st.tuples(STEPS, STEPS, STEPS),
    least=st.floats(0.1, 5.0),
    aim=st.sampled_from(sorted(OBJECTIVES)),
    here=st.sampled_from(NAMES),
)
def test_beaten_from_is_where_beaten_begins(steps, least, aim, here):
    found = [stood(name, step_s) for name, step_s in zip(NAMES, steps, strict=False)]
    course, objective = COURSES[here], OBJECTIVES[aim]
    begins = dominated_from_step_s(course, least, found, objective, Limits())
    assert begins >= least
    if begins < inf:
        assert dominating_cluster(course, begins, found, objective, Limits())
        assert dominating_cluster(course, 2 * begins, found, objective, Limits())
    if least * CLOSE < begins < inf:
        assert not dominating_cluster(course, begins / CLOSE**2, found, objective, Limits())


@given(st.lists(st.tuples(st.sampled_from(NAMES), STEPS), max_size=8))
def test_who_is_in_the_set_is_beaten_by_none(drawn):
    found = [stood(name, step_s) for name, step_s in drawn]
    best = pareto_front(found)
    assert bool(best) == bool(found)
    seconds = [standing.point[0] for standing in best]
    assert seconds == sorted(seconds)
    for standing in found:
        others = [other for other in found if other is not standing]
        by = dominating_cluster(standing.course, standing.step_s, others, OBJECTIVES["time"], Limits())
        assert (by is None) == (standing in best)


@pytest.mark.parametrize("aim", OBJECTIVES)
def test_every_objective_grows_with_the_step(aim):
    measure = OBJECTIVES[aim].measure
    values = [measure(COURSES[NAMES[0]], step_s) for step_s in (0.1, 1.0, 10.0, 1e4)]
    assert values == sorted(set(values))


def test_a_training_without_an_end_is_not_in_the_set():
    stuck = Assumptions(failures_per_1000_node_days=1e9)
    course = TrainingCost.of(setting(NAMES[0], stuck), TrainingTerms(10**11, stuck))
    assert (
        pareto_front([RankedCluster(Offer(NAMES[0], course.setting.cluster), course, "searched", 1.0)]) == []
    )
