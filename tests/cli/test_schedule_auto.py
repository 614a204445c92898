"""``meshwright schedule auto``: the form of every schedule, the search beside it, exit codes, an interrupt."""

import signal
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from command_runs import is_finite, refused, run

from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.custom.csv_file import read_lists

SIZE = ("--stages", 4, "--micro-batches", 6)
SEARCH = {
    "lower_bound",
    "bound_reason",
    "gap",
    "proven",
    "found_by",
    "best_seed",
    "seed_makespan",
    "interrupted",
}
BRANCHES = Path(__file__).parents[2] / "examples" / "branches" / "vision-text.yaml"
SOON = ("--time-budget", 0.2, "--method", "local")
UNPROVEN = (
    *("--stages", 4, "--micro-batches", 8, "--chunks", 2, "--placement", "loop"),
    *("--memory-limit", 4, "--method", "local"),
)


def test_it_has_the_public_form_and_the_search():
    done = run("schedule", "auto", *SIZE, "--memory-limit", 6, "--json")
    assert (done.code, done.err) == (0, "")
    assert is_finite(done.data)
    assert done.data.keys() >= SEARCH | {"makespan", "latency", "bubble_rate", "peak_memory", "actions"}
    assert (done.data["makespan"], done.data["lower_bound"], done.data["proven"]) == (24, 24, True)
    assert done.data["seed_makespan"] == 25
    assert max(done.data["peak_memory"]) <= 6


def test_text_says_how_it_was_found():
    shown = run("schedule", "auto", *SIZE, "--memory-limit", 6).out
    assert "found by local search, 4.0% shorter than zero-bubble" in shown
    assert "no lists within memory 6 can be shorter" in shown
    shown = run("schedule", "auto", *UNPROVEN, "--time-budget", 0.2).out
    assert "above the lower bound" in shown


def test_the_memory_of_1f1b_is_the_usual_limit():
    data = run("schedule", "auto", *SIZE, "--json").data
    assert (data["memory_limit"], data["makespan"], data["found_by"]) == (8, 21, "zb-h1")


def test_lists_and_picture_are_written(tmp_path):
    lists, picture = tmp_path / "lists.csv", tmp_path / "picture.svg"
    files = ("--csv", lists, "--svg", picture)
    done = run("schedule", "auto", *SIZE, "--virtual-stages", 2, *SOON, *files)
    assert done.code == 0
    assert not check_lists(read_lists(lists), memory_limit=8)
    assert ElementTree.fromstring(picture.read_text(encoding="utf-8")).tag.endswith("svg")


def test_operators_with_branches_get_ranks_and_lists(tmp_path):
    lists, picture = tmp_path / "lists.csv", tmp_path / "picture.svg"
    size = ("--ranks", 4, "--micro-batches", 4, "--memory", 80)
    files = ("--csv", lists, "--svg", picture)
    done = run("schedule", "auto", "--graph", BRANCHES, *size, *SOON, *files)
    assert (done.code, done.err) == (0, "")
    assert "28 operators in" in done.out
    assert "than the best chain" in done.out
    assert len(read_lists(lists)) == 4
    again = run("schedule", lists, "--graph", BRANCHES, "--json").data
    shown = run("schedule", lists, "--graph", BRANCHES, "--svg", tmp_path / "again.svg")
    assert shown.code == 0
    assert f"of{lists}" in "".join(shown.out.split())  # a long path breaks lines
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == picture.read_text(encoding="utf-8")
    assert again["actions"] == [[str(a) for a in actions] for actions in read_lists(lists)]
    assert again["lower_bound_s"] <= again["step_s"]
    assert run("schedule", lists, "--graph", BRANCHES, "--memory", 0.5).code == 1
    assert "in GiB" in picture.read_text(encoding="utf-8")
    data = run("schedule", "auto", "--graph", BRANCHES, *size, *SOON, "--json").data
    assert data["lower_bound_s"] <= data["step_s"] <= data["chain_step_s"]
    assert max(data["peak_bytes"]) <= data["memory_bytes"] == 80 * 2**30


def test_a_plan_brings_its_own_times_and_memory(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "own-schedule" / "plan.yaml"
    done = run("schedule", "auto", "--from", example, "--time-budget", 1, "--csv", tmp_path / "lists.csv")
    assert (done.code, done.err) == (0, "")
    assert "2 ranks of 2 stages, 8 micro-batches" in done.out
    assert len(read_lists(tmp_path / "lists.csv")) == 2
    times = tmp_path / "times.yaml"
    done = run("predict", example, "--stage-times", times)
    assert done.code == 0
    assert "times.yaml" in done.out
    size = ("--stages", 2, "--micro-batches", 8, "--stage-times", times)
    assert run("schedule", "zb-v", *size, "--json").data["ranks"] == 2


@pytest.mark.parametrize(("placement", "last"), [("v", 0), ("loop", 3)])
def test_stages_lie_as_asked(placement, last):
    options = ("--chunks", 2, "--placement", placement, *SOON)
    assert run("schedule", "auto", *SIZE, *options, "--json").data["placement"][-1] == last


def test_less_than_a_micro_batch_is_infeasible():
    done = run("schedule", "auto", *SIZE, "--memory-limit", 1.5, "--json")
    assert (done.code, done.data["suggestion"]) == (1, "--memory-limit 2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("auto",), "stages: is needed"),
        (
            ("auto", *SIZE, "--placement", "w"),
            "placement = 'w': is no way to lay stages. Suggestion: one of loop, v",
        ),
        (
            ("auto", *SIZE, "--method", "exakt"),
            "method = 'exakt': is no way to search. Suggestion: did you mean exact",
        ),
        (("auto", *SIZE, "--time-budget", 0), "time-budget = 0.0: must be above 0"),
        (("auto", *SIZE, "--seed", -1), "seed = -1: must be from 0"),
        (("auto", *SIZE, "--unit", 4), "unit = 4: auto has no unit"),
        (("auto", *SIZE, "--chunks", 65), "chunks = 65: must be from 1 to 64"),
        (("auto", "--stages", 100, "--micro-batches", 10_000), "too many to search"),
        (("1f1b", *SIZE, "--seed", 1), "--seed = '1': is for `meshwright schedule auto`"),
        (("1f1b", *SIZE, "--from", "plan.yaml"), "is for `meshwright schedule auto`"),
        (("auto", "--from", "nowhere.yaml"), "nowhere.yaml"),
        (("auto", *SIZE, "--memory", 4), "--memory = '4.0': is for a graph: --graph"),
        (("1f1b", *SIZE, "--graph", BRANCHES), "is for `meshwright schedule auto`"),
        (("auto", "--graph", BRANCHES, "--chunks", 2), "--chunks = '2': is not for a graph"),
        (("auto", "--graph", BRANCHES, "--seed", -1), "ranks: is needed"),
        (("auto", "--graph", "nowhere.yaml", *SIZE), "graph = 'nowhere.yaml': cannot be read"),
        (
            ("compare", "1f1b", *SIZE, "--method", "exact"),
            "--method = 'exact': is for `meshwright schedule auto`",
        ),
    ],
)
def test_wrong_questions(words, message):
    assert message in refused("schedule", *words)


def interrupted(*words):
    """The answer to a question that is interrupted after two seconds."""

    def interrupt(*_):
        raise KeyboardInterrupt

    usual = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        done = run(*words, "--json")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    assert (done.code, done.err) == (0, "")
    assert done.data["interrupted"]
    return done.data


def test_an_interrupt_ends_with_the_best_lists():
    data = interrupted("schedule", "auto", *UNPROVEN)
    assert data["makespan"] <= data["seed_makespan"]


def test_an_interrupt_ends_with_the_best_ranks_and_lists():
    size = ("--ranks", 4, "--micro-batches", 8, "--method", "local")
    data = interrupted("schedule", "auto", "--graph", BRANCHES, *size)
    assert data["lower_bound_s"] <= data["step_s"] <= data["chain_step_s"]
