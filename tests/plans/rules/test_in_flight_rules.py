"""Rules of ``in_flight``: schedules and stacks that have it, the smallest value, and what excludes it."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan, short_plan

from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.rules.check_plan import check_plan
from meshwright.stack.load import load_stack

ABLE = replace(
    STACK,
    schedules=("1f1b", "interleaved-1f1b", "looped-bfs", "zero-bubble"),
    schedule_knobs=("unit", "in_flight"),
)


def problems(schedule, chunks=1, stack=ABLE):
    plan = long_plan(pipeline={"schedule": schedule, "virtual_stages": chunks})
    return check_plan(plan, graph(DENSE), cluster(64), stack)


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        ({"name": "1f1b", "in_flight": 1}, 1),
        ({"name": "1f1b", "in_flight": 1000}, 1),
        ({"name": "interleaved-1f1b", "unit": 8, "in_flight": 2}, 2),
        ({"name": "looped-bfs", "in_flight": 5}, 2),
    ],
)
def test_three_schedules_take_any_number_from_their_stages_on(schedule, chunks):
    assert problems(schedule, chunks) == []


@pytest.mark.parametrize(
    ("schedule", "chunks", "stack", "rule", "hint"),
    [
        (
            {"name": "zero-bubble", "in_flight": 4},
            1,
            ABLE,
            "zero-bubble does not look at it",
            "take it out, or a schedule that does: 1f1b, interleaved-1f1b, looped-bfs",
        ),
        (
            {"name": "interleaved-1f1b", "in_flight": 1},
            2,
            ABLE,
            "in_flight = 1 < 2 stages of a pipeline rank, and a micro-batch goes through all of them",
            "in_flight: 2",
        ),
        ({"name": "1f1b", "in_flight": 2}, 1, STACK, "test-stack@1.0 has no choice of it", "take it out"),
    ],
)
def test_the_others_refuse_it_by_name(schedule, chunks, stack, rule, hint):
    (problem,) = problems(schedule, chunks, stack)
    assert (problem.field, problem.value) == ("pipeline.schedule.in_flight", schedule["in_flight"])
    assert (problem.rule, problem.suggestion) == (rule, hint)


def test_a_spread_vocabulary_excludes_it():
    schedule = {"name": "1f1b", "vocabulary": "vocab-1", "in_flight": 3}
    plan = expand(short_plan(pipeline={"schedule": schedule}), DENSE)
    (problem,) = (
        problem
        for problem in check_plan(plan, graph(DENSE), cluster(64), load_stack("meshwright"))
        if problem.field == "pipeline.schedule.in_flight"
    )
    assert "with vocabulary = vocab-1 ranks hold more" in problem.rule


def test_both_forms_of_a_plan_keep_it():
    short = short_plan(pipeline={"schedule": {"name": "1f1b", "in_flight": 3}})
    long = expand(short, DENSE)
    assert long.pipeline.schedule.in_flight == 3
    assert shorten(long).pipeline.choice == short.pipeline.choice
    for plan in (short, long):
        assert parse_plan(dump_plan(plan)) == plan
