"""``meshwright schedule``: exit codes, files, JSON on long lines, words before the names."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from command_runs import command, is_finite, refused, run, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.schedules.custom.csv_file import read_lists
from meshwright.schedules.generators import SCHEDULES
from meshwright.verbs.schedule import named_schedules

SIZE = ("--stages", 4, "--micro-batches", 8)
CONTRACT = {"makespan", "latency", "bubble_rate", "peak_memory", "actions"}
ANY = settings(deadline=None, max_examples=36, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_the_public_form(name):
    done = run("schedule", name, *SIZE, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data.keys() >= CONTRACT
    assert is_finite(done.data)
    assert len(done.data["peak_memory"]) == len(done.data["actions"]) == 4
    assert name in run("schedule", name, *SIZE).out


def test_json_has_a_rank_on_every_line():
    lines = run("schedule", "1f1b", "--stages", 3, "--micro-batches", 3, "--json").out.splitlines()
    assert '["0F0", "0F1", "0F2", "0B0", "0B1", "0B2"],' in lines


def test_lists_and_picture_are_written(tmp_path):
    lists, picture = tmp_path / "lists.csv", tmp_path / "picture.svg"
    done = run("schedule", "zb-h1", *SIZE, "--csv", lists, "--svg", picture)
    assert done.code == 0
    assert str(lists) in done.out.replace("\n", "")
    assert read_lists(lists) == SCHEDULES["zb-h1"].lists(4, 8, 1)
    assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")
    again = run("schedule", lists, "--json")
    named = run("schedule", "zb-h1", *SIZE, "--json")
    assert {**again.data, "schedule": ""} == {**named.data, "schedule": ""}


def test_schedules_beside_each_other(tmp_path):
    picture = tmp_path / "picture.svg"
    done = run("schedule", "compare", "1f1b", "zb-h1", *SIZE, "--svg", picture, "--json")
    assert (done.code, done.err) == (0, "")
    assert [row["makespan"] for row in done.data["rows"]] == [33, 27]
    assert picture.read_text(encoding="utf-8").startswith("<")
    assert "1f1b" in run("schedule", "compare", "1f1b", "zb-h1", *SIZE).out


@pytest.mark.slow
def test_the_table_of_all():
    data = run("schedule", "list", "--json").data
    assert [row["schedule"] for row in data["schedules"]] == list(SCHEDULES)
    assert all(name in run("schedule", "list").out for name in SCHEDULES)


def test_a_limit_that_is_not_kept_exits_with_1_and_says_why():
    done = run("schedule", "1f1b", *SIZE, "--memory-limit", 5)
    assert (done.code, done.out) == (1, "")
    assert "rank 0 holds 6 > 5" in done.err
    data = run("schedule", "1f1b", *SIZE, "--memory-limit", 5, "--json")
    assert data.code == 1
    assert data.data["reasons"]
    assert data.data["suggestion"].startswith("--memory-limit 8")
    assert run("schedule", "compare", "1f1b", "gpipe", *SIZE, "--memory-limit", 5).code == 1
    assert run("schedule", "compare", "1f1b", "gpipe", *SIZE, "--memory-limit", 8).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("1f1b",), "stages: is needed"),
        (("1f1b", "zb-h1", *SIZE), "meshwright schedule compare 1f1b zb-h1"),
        (("list", "--stages", 4), "--stages = '4': is for a single schedule"),
        (
            ("list", "1f1b"),
            "NAME = '1f1b': is one name too many. Suggestion: meshwright schedule compare 1f1b",
        ),
        (("compare", *SIZE), "nothing to compare"),
        (("compare", "1f1b", *SIZE, "--csv", "x.csv"), "--csv = 'x.csv': is for a single schedule"),
        (("compare", "1f1b", "gpipe", *SIZE, "--chunks", 2), "chunks = 2: none of the schedules can have it"),
        (("1f1c", *SIZE), "did you mean 1f1b"),
        (("none.csv", *SIZE), "No such file"),
        (("/dev/null", *SIZE), "has 0 rows"),
        (("1f1b", *SIZE, "--times", "1,2"), "has 2 numbers, not F,I,W or F,I,W,COMM"),
        (("1f1b", *SIZE, "--stage-times", "none.csv"), "stage-times = 'none.csv': cannot be read"),
        (("1f1b", *SIZE, "--memory-limit", "nan"), "memory-limit = nan: must be above 0"),
    ],
)
def test_wrong_questions(words, message):
    assert message in refused("schedule", *words)
    problems = run("schedule", *words, "--json").data["problems"]
    assert all(problem["rule"] and problem["suggestion"] for problem in problems)


def test_paths_that_cannot_be_written_are_refused_before_the_work(tmp_path):
    for option in ("--csv", "--svg"):
        assert "no directory" in refused("schedule", "1f1b", *SIZE, option, tmp_path / "absent" / "x")
        assert "is a directory" in refused("schedule", "1f1b", *SIZE, option, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_path_that_is_no_text_stays_json():
    done = command("schedule", b"no\xfftext.csv", "--json")
    assert done.returncode == 2
    assert b"No such file" in done.stdout


def test_the_files_that_the_documentation_shows_are_read(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    lists, times = re.findall(r"^```(?:yaml)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert run("schedule", write(tmp_path / "lists.csv", lists), "--json").data["ranks"] == 2
    done = run("schedule", "1f1b", *SIZE, "--stage-times", write(tmp_path / "t.yaml", times), "--json")
    assert done.data["times"]["kept"] == 0.5
    assert done.data["times"]["forward"][3] == 1.2


LISTS = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n"


@st.composite
def scratched(draw):
    text = LISTS
    for _ in range(draw(st.integers(1, 4))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 9))
        new = draw(
            st.sampled_from(("", "\0", "\n", ",", "0F0", "1W1", "2F0", "0SEND_F0", "9" * 9 + "F0", '"', "é"))
        )
        text = text[:at] + new + text[at + length :]
    return text


@given(text=scratched())
@ANY
def test_scratched_lists(text, tmp_path):
    file = write(tmp_path / "lists.csv", text)
    done, again = run("schedule", file), run("schedule", file, "--json")
    assert done.code == again.code
    if done.code == 2:
        assert done.err.startswith("Error: the input is wrong.\n  ")
        assert again.data["problems"]


def test_what_takes_long_is_said_before(monkeypatch):
    monkeypatch.setattr(named_schedules, "PATIENCE_S", 0.0)
    done = run("schedule", "compare", "zb-v", "1f1b", *SIZE)
    assert (done.code, done.err.count("passes to order and play")) == (0, 2)
    assert run("schedule", "zb-v", *SIZE, "--json").err.startswith("Remark: zb-v has 192 passes")
    monkeypatch.undo()
    assert run("schedule", "zb-v", *SIZE).err == ""


def test_a_sweep_of_limits_is_a_table_and_a_picture(tmp_path):
    picture = tmp_path / "sweep.svg"
    words = ("schedule", "compare", "1f1b", "zb-v", *SIZE, "--memory-limit", "4,8,16")
    text = run(*words, "--svg", picture).out
    assert "limit 16" in text
    assert "–" in text
    assert "bubble" in picture.read_text(encoding="utf-8")
    assert {row["memory_limit"] for row in run(*words, "--json").data["rows"]} == {4, 8, 16}
    assert "several limits" in refused("schedule", "1f1b", *SIZE, "--memory-limit", "4,8")
    assert "no number" in refused("schedule", "1f1b", *SIZE, "--memory-limit", "many")
