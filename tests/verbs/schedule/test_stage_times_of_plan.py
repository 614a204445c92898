"""A plan's own times and memory for ``schedule``: from a plan to its lists and back."""

import pytest

from meshwright import api
from meshwright.errors import InputError
from meshwright.verbs.schedule.schedule_request import ScheduleRequest
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions

PLAN = """plan: 1
model: llama-3.1-8b
cluster: a100-sxm-40gb x 8
workload: {seq_len: 4096, global_batch: 16}
stack: meshwright
layout: LAYOUT
sharding: none
pipeline: {schedule: SCHEDULE, virtual_stages: CHUNKS}
"""
QUICK = ScheduleSearchOptions(time_budget=2.0, method="local")


@pytest.fixture
def plan_file(tmp_path):
    """Writes a plan."""

    def write(layout="{pp: 8}", schedule="{name: zero-bubble, memory_limit: 0.5}", chunks=1):
        path = tmp_path / "plan.yaml"
        text = PLAN.replace("LAYOUT", layout).replace("SCHEDULE", schedule)
        path.write_text(text.replace("CHUNKS", str(chunks)), encoding="utf-8")
        return path

    return write


def test_from_a_plan_to_better_lists_and_back(plan_file, tmp_path):
    path = plan_file()
    before = api.predict(path)
    found = api.solve_plan(path, ScheduleRequest(), QUICK)
    data = found.to_json()
    assert data["goal"] == "latency"
    assert data["lower_bound"] <= data["latency"] <= data["seed_makespan"]
    assert data["best_seed"] == "zero-bubble (memory limit 0.5)"
    (tmp_path / "lists.csv").write_text(found.csv(), encoding="utf-8")
    after = api.predict(path, settings=[f"schedule={{file: {tmp_path / 'lists.csv'}}}"])
    assert after.fits
    assert after.step_time_s < before.step_time_s
    saved = data["seed_makespan"] - data["latency"]
    assert before.step_time_s - after.step_time_s == pytest.approx(saved, rel=1e-6)


def test_a_limit_holds_beside_the_plans_memory(plan_file):
    path = plan_file("{pp: 4, tp: 2}", "zb-h1")
    data = api.solve_plan(path, ScheduleRequest(memory_limit=5.0), QUICK).to_json()
    assert max(data["peak_memory"]) <= 5.0
    assert data["fits"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("layout", "schedule", "chunks"), [("{pp: 4, tp: 2}", "zb-h1", 1), ("{pp: 4, tp: 2}", "zb-v", 2)]
)
def test_the_file_of_times_is_what_the_plan_is_played_with(plan_file, tmp_path, layout, schedule, chunks):
    """A schedule by its name, played with these times, takes as long as the plan's pipeline but for nanoseconds."""
    path = plan_file(layout, schedule, chunks)
    file = tmp_path / "times.yaml"
    text = api.stage_times(path, "times.yaml")
    file.write_text(text, encoding="utf-8")
    asked = ScheduleRequest(stages=4, micro_batches=16, stage_times=str(file))
    played = api.schedule(schedule, asked).to_json()
    breakdown = api.predict(path).breakdown_s
    pipeline = sum(breakdown[name] for name in ("compute", "tp", "cp", "ep", "pp", "bubble", "host"))
    assert played["latency"] == pytest.approx(pipeline, rel=1e-5)
    command = text.splitlines()[2]
    assert "schedule auto --stages 4 --micro-batches 16" in command
    assert ("--chunks 2 --placement v" in command) == (chunks == 2)
    limit = float(command.partition("--memory-limit ")[2].split()[0])
    asked = ScheduleRequest(
        stages=4, micro_batches=16, chunks=chunks, memory_limit=limit, stage_times=str(file)
    )
    lists = tmp_path / "lists.csv"
    lists.write_text(api.solve_schedule(asked, QUICK).csv(), encoding="utf-8")
    assert api.predict(path, settings=[f"schedule={{file: {lists}}}"]).fits


def test_settings_change_the_plan_first(plan_file):
    times = [
        parse_times(api.stage_times(plan_file(), "t.yaml", settings=changed))
        for changed in ((), ("recompute=full",))
    ]
    assert times[1]["I"][0] > times[0]["I"][0]
    assert times[1]["F"] == times[0]["F"]


def parse_times(text):
    from meshwright.plans.files.yaml_text import read_mapping

    return read_mapping(text, "times")


@pytest.mark.parametrize(
    ("layout", "schedule", "message"),
    [
        ("{pp: 1, tp: 8}", "1f1b", "one pipeline rank has nothing to order"),
        ("{pp: 8}", "{name: 1f1b, vocabulary: vocab-1}", "spreads the vocabulary over the ranks"),
        ("{pp: 8}\noffload: {activations: all}", "1f1b", "its activations wait on the host"),
    ],
)
def test_plans_with_nothing_to_order_are_refused(plan_file, layout, schedule, message):
    path = plan_file(layout, schedule)
    path.write_text(
        path.read_text(encoding="utf-8").replace("a100-sxm-40gb", "h100-sxm-80gb"), encoding="utf-8"
    )
    for ask in (
        lambda: api.stage_times(path, "t.yaml"),
        lambda: api.solve_plan(path, ScheduleRequest(), QUICK),
    ):
        with pytest.raises(InputError, match=message):
            ask()


def test_what_the_plan_says_is_not_said_again(plan_file):
    with pytest.raises(InputError) as caught:
        api.solve_plan(
            plan_file(),
            ScheduleRequest(stages=4, times="1,1,1"),
            ScheduleSearchOptions(placement="v", seed=-1),
        )
    assert {problem.field for problem in caught.value.problems} == {"stages", "times", "placement", "seed"}
