"""Pipeline schedules asked for by name: figures, limits, comparisons, the table of all."""

import json

import pytest
from schedule_cases import SIZE, schedule

from meshwright import api
from meshwright.errors import InfeasibleError, InputError
from meshwright.schedules.action import parse_actions
from meshwright.schedules.custom.csv_file import lists_from_csv
from meshwright.schedules.generators import SCHEDULES
from meshwright.verbs.schedule.schedule_request import MAX_PASSES, ScheduleRequest

CONTRACT = {"makespan", "latency", "bubble_rate", "peak_memory", "actions"}


def refused(name, **options):
    with pytest.raises(InputError) as error:
        schedule(name, **options)
    assert all(problem.rule and problem.suggestion for problem in error.value.problems)
    return {problem.field: problem for problem in error.value.problems}


def test_the_public_form_has_the_keys_of_the_contract_and_is_json():
    data = schedule("zb-h1", **SIZE).to_json()
    assert data.keys() >= CONTRACT
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    for key in ("actions", "start", "end", "held"):
        assert [len(row) for row in data[key]] == [24] * 4
    assert len(data["peak_memory"]) == len(data["busy"]) == len(data["messages"]) == 4
    assert [max(row) for row in data["held"]] == data["peak_memory"]
    assert data["makespan"] == max(e[-1] - s[0] for s, e in zip(data["start"], data["end"], strict=True))
    for row in data["actions"]:
        assert parse_actions(" ".join(row))


@pytest.mark.parametrize("name", SCHEDULES)
def test_times_are_of_a_whole_rank_whatever_its_chunks(name):
    """The busiest rank works M·(F + I + W), so that the bubble rate is makespan / (M·(F + I + W)) − 1."""
    found = schedule(name, **SIZE, times="1,0.7,0.4,0.1")
    assert found.figures.makespan == pytest.approx(8 * 2.1 * (1 + found.figures.bubble_rate))
    assert found.figures.makespan >= 8 * 2.1


@pytest.mark.parametrize(("name", "makespan"), [("1f1b", 33), ("zb-h1", 27), ("zb-h2", 24), ("gpipe", 33)])
def test_makespans_of_the_zero_bubble_paper(name, makespan):
    """Four ranks, eight micro-batches, equal times (Qi et al., arXiv 2401.10241)."""
    assert schedule(name, **SIZE).figures.makespan == makespan


def test_decimal_times_add_up_exactly():
    """Ten tenths are one: 0.1 is no sum of powers of two, and 24 times 0.1 are 2.4 all the same."""
    figures = schedule("zb-h2", **SIZE, times="0.1,0.1,0.1,0").figures
    assert (figures.makespan, figures.bubble_rate) == (2.4, 0)
    thirds = schedule("interleaved-1f1b", **SIZE, chunks=3, times="0.1,0.1,0.1,0").figures
    assert thirds.makespan == pytest.approx(2.4 * (1 + 3 / 24))


def test_the_lists_are_those_of_the_table_of_schedules():
    found = schedule("interleaved-1f1b", **SIZE, chunks=2)
    assert found.made.lists == SCHEDULES["interleaved-1f1b"].lists(4, 8, 2)
    assert lists_from_csv(found.csv()) == found.made.lists


def test_stages_may_differ(tmp_path):
    path = tmp_path / "stages.csv"
    path.write_text("I, F, W\n1,1,1\n\n1,1,1\n2,2,2\n1,1,1\n", encoding="utf-8")
    found = schedule("1f1b", **SIZE, stage_times=str(path))
    assert found.figures.busy[2] == max(found.figures.busy)
    assert found.figures.busy[2] == pytest.approx(1 / (1 + found.figures.bubble_rate))
    assert found.figures.busy[0] == pytest.approx(found.figures.busy[2] / 2)
    slow = schedule("1f1b", **SIZE, times="2,2,2")
    assert schedule("1f1b", **SIZE).figures.makespan < found.figures.makespan < slow.figures.makespan


def test_stage_times_as_yaml_say_more(tmp_path):
    path = tmp_path / "stages.yaml"
    path.write_text("F: [1, 1, 1, 1]\nI: [1, 1, 1, 1]\nW: [1, 1, 1, 1]\nmessage: 0.5\nkept: 1\n")
    found, plain = (
        schedule("gpipe", **SIZE, stage_times=str(path)),
        schedule("gpipe", **SIZE, times="1,1,1,0.5"),
    )
    assert found.figures == plain.figures
    kept = schedule("zb-h2", **SIZE, stage_times=str(path)).to_json()
    assert kept["times"]["kept"] == 1
    assert [max(row) for row in kept["held"]] == kept["peak_memory"]


BAD_CSV = (
    *("", "\0", '"', "F,I\n1,1\n", "F,I,W\n", "F,I,W\n1,1\n1,1,1\n1,1,1\n1,1,1\n"),
    *("F,I,W\n" + 4 * row for row in ("1,x,nan\n", "0,0,0\n", "-1,1e300,1e-300\n")),
    "F,I,W\n1,1,1\n1,1,1\n1,1,1\n",
)
BAD_YAML = (
    *("", "[1]", "F: 1\nI: 1\nW: 1\n", "F: [1]\nI: [1]\nW: []\n", "F: []\nI: []\nW: []\n"),
    *("F: [1]\nI: [1]\nW: [1]\nZ: {}\n", "F: [a]\nI: [[1]]\nW: [true]\n", "a: &a [1]\nb: *a\n", "[" * 5000),
    "F: [1, 1, 1, 1]\nI: [1, 1, 1, 1]\nW: [1, 1, 1, 1]\nkept: 2\nmessage: []\n",
)


@pytest.mark.parametrize(
    ("name", "text"), [*(("t.csv", text) for text in BAD_CSV), *(("t.yaml", text) for text in BAD_YAML)]
)
def test_wrong_stage_times_are_problems(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    problems = refused("1f1b", **SIZE, stage_times=str(path))
    assert all(field.startswith("stage-times") for field in problems)


@pytest.mark.parametrize(
    "times", ["", "1", "1,1", "1,1,1,1,1", "a,b,c", "0,0,0", "-1,1,1", "nan,1,1", "1e400,1,1", "1,1,1,1e-30"]
)
def test_wrong_times_are_problems(times):
    assert refused("1f1b", **SIZE, times=times).keys() == {"times"}


def test_times_are_given_once(tmp_path):
    assert "times" in refused("1f1b", **SIZE, times="1,1,1", stage_times=str(tmp_path / "absent.csv"))


def test_all_problems_of_a_question_come_at_once():
    problems = refused("interleaved-1f1b", chunks=1, unit=0, times="1,x", memory_limit=-1.0)
    assert problems.keys() == {"stages", "micro-batches", "chunks", "unit", "times", "memory-limit"}


@pytest.mark.parametrize(
    ("name", "options", "field", "suggestion"),
    [
        ("interleaved-1f1b", {"stages": 4, "micro_batches": 9}, "micro-batches", "--micro-batches 12"),
        ("dualpipe", {"stages": 3, "micro_batches": 8}, "stages", "--stages 4"),
        ("dualpipe", {"stages": 4, "micro_batches": 9}, "micro-batches", "--micro-batches 10"),
        ("zeropp", {"stages": 4, "micro_batches": 8, "unit": 3}, "unit", "--unit 4"),
        ("interleaved-1f1b", {"stages": 4, "micro_batches": 9, "unit": 4}, "unit", "--unit 5"),
        (
            "interleaved-1f1b",
            {"stages": 4, "micro_batches": 2, "unit": 2},
            "micro-batches",
            "--micro-batches 4",
        ),
        ("1f1b", {"stages": 4, "micro_batches": 8, "unit": 4}, "unit", "leave it out"),
        ("1f1b", {"stages": 4, "micro_batches": 8, "chunks": 2}, "chunks", "--chunks 1"),
        ("v-half", {"stages": 4, "micro_batches": 8, "chunks": 4}, "chunks", "--chunks 2"),
        ("1f1b", {"stages": 0, "micro_batches": 8}, "stages", "--stages 1"),
        ("1f1b", {"stages": 10**9, "micro_batches": 8}, "stages", "--stages 1024"),
        ("1f1b", {"stages": 1024, "micro_batches": 10**5}, "micro-batches", "--micro-batches 4096"),
        ("1f1b", {"stages": 4, "micro_batches": 8, "memory_limit": float("nan")}, "memory-limit", ""),
        ("zb-h3", {"stages": 4, "micro_batches": 8}, "schedule", "did you mean zb-h"),
        ("\0", {"stages": 4, "micro_batches": 8}, "schedule", "one of"),
    ],
)
def test_a_wrong_question_names_what_would_do(name, options, field, suggestion):
    problems = refused(name, **options)
    assert problems.keys() == {field}
    assert problems[field].suggestion.startswith(suggestion)


def test_what_is_suggested_is_accepted():
    assert schedule("zeropp", stages=4, micro_batches=8, unit=4).figures.makespan > 0
    assert schedule("interleaved-1f1b", stages=4, micro_batches=9, unit=5).made.shape.total == 9
    assert 3 * 1024 * 4 * 1024 > MAX_PASSES >= 3 * 64 * 2048 * 4


def test_a_limit_that_is_not_kept_is_an_answer_with_reasons():
    with pytest.raises(InfeasibleError) as error:
        schedule("1f1b", **SIZE, memory_limit=5)
    assert error.value.exit_code == 1
    assert len(error.value.reasons) == 2
    assert "rank 0 holds 6 > 5, the limit, with 0F2 at 2; at most 8, 3 too much" in error.value.reasons[0]
    assert error.value.suggestion.startswith("--memory-limit 8")
    assert "zero-bubble" in error.value.suggestion
    assert schedule("1f1b", **SIZE, memory_limit=8).figures.peak_memory[0] == 8


@pytest.mark.parametrize("limit", [4, 6, 8, 12])
def test_schedules_that_heed_the_limit_keep_it(limit):
    tight = schedule("zero-bubble", **SIZE, memory_limit=limit)
    assert max(tight.figures.peak_memory) <= limit
    wide = schedule("zero-bubble", **SIZE, memory_limit=limit + 4)
    assert wide.figures.makespan <= tight.figures.makespan


def test_several_schedules_stand_beside_each_other():
    names = ("1f1b", "interleaved-1f1b", "dualpipe")
    data = api.compare_schedules(names, ScheduleRequest(**SIZE, chunks=4)).to_json()
    rows = {row["schedule"]: row for row in data["rows"]}
    assert tuple(rows) == names
    assert [row["chunks"] for row in rows.values()] == [1, 4, 2]
    assert [row["parameters_held"] for row in rows.values()] == [1, 1, 2]
    alone = schedule("interleaved-1f1b", **SIZE, chunks=4).summary()
    assert rows["interleaved-1f1b"] == alone


def stage_file(path, rows):
    lines = [",".join(str(number) for number in row) for row in rows]
    path.write_text("\n".join(["F,I,W", *lines]) + "\n", encoding="utf-8")
    return str(path)


UNEVEN = [(2.0, 3.0, 1.0), (4.0, 2.0, 2.0), (1.0, 1.0, 1.0), (3.0, 6.0, 2.0)]


def makespans(names, path, **options):
    asked = ScheduleRequest(stages=4, micro_batches=8, stage_times=path, **options)
    return {row["schedule"]: row["makespan"] for row in api.compare_schedules(names, asked).to_json()["rows"]}


def test_stages_of_a_file_are_split_for_schedules_with_more(tmp_path):
    whole = stage_file(tmp_path / "whole.csv", UNEVEN)
    quarters = [tuple(number / 4 for number in row) for row in UNEVEN for _ in range(4)]
    split = stage_file(tmp_path / "split.csv", quarters)
    found = makespans(("1f1b", "interleaved-1f1b"), whole, chunks=4)
    assert found["1f1b"] == schedule("1f1b", **SIZE, stage_times=whole).summary()["makespan"]
    given = schedule("interleaved-1f1b", **SIZE, chunks=4, stage_times=split).summary()["makespan"]
    assert found["interleaved-1f1b"] == given


def test_stages_of_a_file_are_merged_for_schedules_with_fewer(tmp_path):
    halves = [(2.0, 1.0, 1.0), (1.0, 1.0, 1.0)] * 4
    fine = stage_file(tmp_path / "fine.csv", halves)
    merged = stage_file(tmp_path / "merged.csv", [(3.0, 2.0, 2.0)] * 4)
    found = makespans(("1f1b", "zb-v"), fine)
    assert found["1f1b"] == schedule("1f1b", **SIZE, stage_times=merged).summary()["makespan"]
    assert found["zb-v"] == schedule("zb-v", **SIZE, stage_times=fine).summary()["makespan"]


def test_stages_of_a_file_are_those_of_each_way_of_a_bidirectional_schedule(tmp_path):
    whole = stage_file(tmp_path / "whole.csv", UNEVEN)
    both = stage_file(tmp_path / "both.csv", [*UNEVEN, *UNEVEN])
    found = makespans(("dualpipe",), whole)["dualpipe"]
    assert found == schedule("dualpipe", **SIZE, stage_times=both).summary()["makespan"]


@pytest.mark.parametrize("count", [3, 5, 6])
def test_stages_that_fit_no_schedule_are_a_problem(tmp_path, count):
    path = stage_file(tmp_path / "odd.csv", [(1.0, 1.0, 1.0)] * count)
    with pytest.raises(InputError) as caught:
        makespans(("1f1b", "zb-v"), path)
    assert {problem.field for problem in caught.value.problems} == {"stage-times"}


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize(("forward", "weight"), [(1, 1), (3, 2)])
def test_the_notes_of_bidirectional_schedules_say_how_far_the_published_bubble_is(ranks, forward, weight):
    backward = forward + weight
    published = forward + backward + backward - 3 * weight
    size = {"stages": ranks, "micro_batches": 4 * ranks, "times": f"{forward},{forward},{weight},0"}
    for name, ends in (("dualpipe", ranks / 2 - 1), ("dualpipev", (ranks - 1) / 2)):
        makespan = schedule(name, **size).figures.makespan
        bubble = makespan - 4 * ranks * (forward + backward)
        assert ends * published - bubble == pytest.approx(ends * forward)


def test_of_several_schedules_one_may_break_the_limit_but_not_all():
    found = api.compare_schedules(("gpipe", "1f1b"), ScheduleRequest(**SIZE, memory_limit=8))
    assert [row["fits"] for row in found.to_json()["rows"]] == [False, True]
    with pytest.raises(InfeasibleError) as error:
        api.compare_schedules(("gpipe", "1f1b"), ScheduleRequest(**SIZE, memory_limit=7))
    assert error.value.suggestion == "--memory-limit 8"


def test_problems_of_several_schedules_come_once():
    with pytest.raises(InputError) as error:
        api.compare_schedules(("1f1b", "gpipe", "nope"), ScheduleRequest(stages=4, unit=3, times="x"))
    fields = [problem.field for problem in error.value.problems]
    assert sorted(fields) == ["micro-batches", "schedule", "times", "times", "unit"]
    with pytest.raises(InputError):
        api.compare_schedules((), ScheduleRequest(**SIZE))


def test_the_table_has_every_schedule_with_figures():
    rows = api.schedules()["schedules"]
    assert [row["schedule"] for row in rows] == list(SCHEDULES)
    assert all(row["summary"] and row["allowed_chunks"] and row["bubble_rate"] >= 0 for row in rows)
    assert json.dumps(rows, allow_nan=False)
