"""``meshwright plan --solve``: lists beside the plan, what is told, wrong questions, an interrupt."""

import pytest
from command_runs import is_finite, refused, run

from meshwright.cli.terminal.progress import ProgressLine

ON = ("llama-3.1-8b", "--on", "a100-sxm-40gb x 8", "--seq-len", 4096, "--global-batch", 16)
OWN = ("--stack", "meshwright", "--keep", "pp=8", "--keep", "recompute=none")
QUICK = (
    "--keep",
    "vocabulary=none",
    "--keep",
    "offload=none",
    "--schedule",
    "auto",
    "--solve",
    300,
    "--solve-steps",
    40,
)


def test_a_plan_and_its_lists_are_written_and_predicted_alike(tmp_path):
    path = tmp_path / "best.yaml"
    done = run("plan", *ON, *OWN, *QUICK, "--seed", 3, "-o", path, "--json")
    assert (done.code, done.err) == (0, "")
    assert is_finite(done.data)
    best, solved = done.data["plans"][0], done.data["solved"]
    assert solved["seed"] == 3
    assert best["predict"]["step_time_s"] == min(plan["step_time_s"] for plan in solved["plans"])
    assert "schedule: {file: best.csv, sha256: " in path.read_text(encoding="utf-8")
    predicted = run("predict", path, "--json")
    assert predicted.data["step_time_s"] == best["predict"]["step_time_s"]
    (tmp_path / "best.csv").write_text("0F0", encoding="utf-8")
    assert "it was changed since" in refused("predict", path)


def test_text_says_what_came_of_it(tmp_path):
    path = tmp_path / "best.yaml"
    done = run("plan", *ON, *OWN, *QUICK, "--why", "-o", path)
    shown = " ".join(done.out.split())
    assert "Lists searched for" in shown
    assert "shorter pipeline" in shown
    assert "above what none are below" in shown
    assert "best.csv" in shown
    assert "searched for its own times; zero-bubble" in shown


def test_without_better_lists_one_file_is_written(tmp_path):
    path = tmp_path / "best.yaml"
    keep = ("--stack", "meshwright", "--keep", "pp=1", "--keep", "tp=8")
    done = run("plan", *ON, *keep, "--solve", 1, "--why", "-o", path)
    assert done.code == 0
    assert "no plan with a pipeline fits" in done.out
    assert [file.name for file in tmp_path.iterdir()] == ["best.yaml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*OWN, "--seed", 1), "seed = 1: is for --solve"),
        ((*OWN, "--solve-steps", 5), "solve-steps = 5: is for --solve"),
        ((*OWN, "--solve", "inf"), "solve = inf: must be above 0"),
        (("--solve", 5), "runs schedules by name"),
    ],
)
def test_wrong_questions(words, message):
    assert message in refused("plan", *ON, *words)


def test_an_interrupt_ends_with_the_best_plan(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", interrupt)
    done = run("plan", *ON, *OWN, *QUICK, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.data["interrupted"]
    assert done.data["plans"]
