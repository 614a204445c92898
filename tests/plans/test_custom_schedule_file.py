"""Plans whose schedule is a file: read beside the plan, kept with it, and checked with everything else."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, short_plan

from meshwright.errors import InputError
from meshwright.plans.files.custom_schedule_file import with_custom_lists_read
from meshwright.plans.files.plan_file import dump_plan, load_plan
from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.short import Schedule
from meshwright.plans.resolve import with_files_read
from meshwright.plans.rules.check_plan import check_plan
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.generators import SCHEDULES

LISTS = format_csv(SCHEDULES["1f1b"].lists(4, 8, 1))
ABLE = replace(STACK, written_lists=True, vocabularies=("vocab-1",))


def plan_of(folder, text=LISTS, layout=None, **schedule):
    (folder / "mine.csv").write_text(text)
    pipeline = {"schedule": {"file": "mine.csv"} | schedule}
    return with_custom_lists_read(short_plan(layout, pipeline=pipeline), folder)


def errors(plan, stack=ABLE):
    found = check_plan(expand(plan, DENSE), graph(DENSE), cluster(64), stack)
    return {problem.field: problem for problem in found if problem.severity == "error"}


def test_a_relative_name_is_meant_from_the_plan_or_else_from_here(tmp_path, monkeypatch):
    plan = plan_of(tmp_path)
    assert plan.pipeline.choice.written.lines == tuple(LISTS.splitlines())
    (tmp_path / "plan.yaml").write_text(dump_plan(short_plan(pipeline={"schedule": {"file": "mine.csv"}})))
    assert with_files_read(load_plan(tmp_path / "plan.yaml"), tmp_path) == plan
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    here = with_custom_lists_read(
        short_plan(pipeline={"schedule": {"file": "mine.csv"}}), tmp_path / "elsewhere"
    )
    assert here.pipeline.choice.lists(4, 8, 1) == plan.pipeline.choice.lists(4, 8, 1)
    assert with_custom_lists_read(here, tmp_path / "elsewhere") == here


def test_what_is_written_of_a_plan_names_the_file_and_its_digest(tmp_path):
    plan = plan_of(tmp_path)
    data = plan.to_data()["pipeline"]["schedule"]
    assert data.keys() == {"file", "sha256"}
    (tmp_path / "plan.yaml").write_text(dump_plan(plan))
    assert with_files_read(load_plan(tmp_path / "plan.yaml"), tmp_path) == plan
    (tmp_path / "mine.csv").write_text(LISTS.replace("0F0,0F1", "0F1,0F0"))
    with pytest.raises(InputError, match=r"pipeline.schedule.sha256 = .*it was changed since"):
        with_files_read(load_plan(tmp_path / "plan.yaml"), tmp_path)


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"pipeline.schedule.file = 'none.csv': cannot be read"):
        with_custom_lists_read(short_plan(pipeline={"schedule": {"file": "none.csv"}}), tmp_path)


def test_the_lists_survive_both_forms_and_a_change(tmp_path):
    plan = plan_of(tmp_path)
    long = expand(plan, DENSE)
    assert long.pipeline.placement == (0, 1, 2, 3)
    assert shorten(long).pipeline.choice == plan.pipeline.choice
    assert Schedule.of(plan.pipeline.choice) == plan.pipeline.schedule
    assert errors(plan) == {}


def test_lists_may_stand_in_the_plan_itself(tmp_path):
    plan = short_plan(pipeline={"schedule": {"lists": tuple(LISTS.splitlines())}})
    assert errors(plan) == {}
    (tmp_path / "plan.yaml").write_text(dump_plan(plan))
    assert load_plan(tmp_path / "plan.yaml") == plan


@pytest.mark.parametrize(
    ("schedule", "layout", "field", "rule"),
    [
        ({}, {"pp": 2, "dp_shard": 16, "tp": 2}, "layout.pp", "lists of 4 pipeline ranks"),
        ({}, {"pp": 4, "dp_shard": 4, "tp": 4}, "workload.global_batch", "has 8 micro-batches"),
        ({"unit": 2}, None, "pipeline.schedule.unit", "does not look at it"),
        ({"vocabulary": "vocab-1"}, None, "pipeline.schedule.vocabulary", "has no passes of a vocabulary"),
        ({"name": "1f1b"}, None, "pipeline.schedule", "has a name, and lists of its own"),
        ({"memory_limit": 0.5}, None, "FILE, line 1", "the limit"),
    ],
)
def test_what_does_not_fit_the_plan_is_refused(tmp_path, schedule, layout, field, rule):
    found = errors(plan_of(tmp_path, layout=layout, **schedule))
    assert rule in found[field.replace("FILE", str(tmp_path / "mine.csv"))].rule


def test_stages_lie_where_the_file_has_them(tmp_path):
    text = format_csv(SCHEDULES["zb-v"].lists(4, 8, 2))
    found = errors(plan_of(tmp_path, text))
    assert found["pipeline.virtual_stages"].suggestion == "virtual_stages: 2"
    plan = plan_of(tmp_path, text)
    plan = plan.model_copy(update={"pipeline": plan.pipeline.model_copy(update={"virtual_stages": 2})})
    long = expand(plan, DENSE)
    assert long.pipeline.placement == (0, 1, 2, 3, 3, 2, 1, 0)
    assert errors(plan) == {}
    looped = long.model_copy(
        update={"pipeline": long.pipeline.model_copy(update={"placement": (0, 1, 2, 3) * 2})}
    )
    (problem,) = [p for p in check_plan(looped, graph(DENSE), cluster(64), ABLE) if p.severity == "error"]
    assert (problem.field, problem.suggestion) == ("pipeline.placement", str(list(long.pipeline.placement)))


def test_wrong_lists_come_with_everything_else_that_is_wrong(tmp_path):
    found = errors(plan_of(tmp_path, LISTS.replace("0F1,", ""), {"pp": 4, "dp_shard": 8, "tp": 3}))
    assert f"{tmp_path / 'mine.csv'}, line 1" in found
    assert "layout" in found


def test_a_stack_that_runs_names_only_refuses_lists(tmp_path):
    assert "by name" in errors(plan_of(tmp_path), STACK)["pipeline.schedule.file"].rule


def test_lists_that_were_not_read_are_refused():
    found = errors(short_plan(pipeline={"schedule": {"file": "mine.csv"}}))
    assert "was not read" in found["pipeline.schedule.file"].rule
    found = errors(short_plan(pipeline={"schedule": {"name": "1f1b", "sha256": "0" * 64}}))
    assert "of a file" in found["pipeline.schedule.sha256"].rule
