"""The runner of `make proof`: it keeps what passes, runs again what changed, and names what fails."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COUNT = """
from pathlib import Path

import lines

with Path("{name}.txt").open("a") as file:
    file.write(lines.LINE)
"""
PAGE = """
import sys
from pathlib import Path

Path("benchmarks/page.md").write_text(Path(sys.argv[1]).read_text())
with Path("src/constant.csv").open("w") as file:
    file.write(Path(sys.argv[1]).read_text())
with Path("page.txt").open("a") as file:
    file.write("ran\\n")
"""
STEPS = """
- {name: counted, target: proof, run: benchmarks/counted.py, inputs: [data]}
- {name: alone, target: proof, run: benchmarks/alone.py, alone: true}
- name: page
  target: refit
  run: benchmarks/page.py {runs}
  writes: [benchmarks/page.md, src/constant.csv]
- {name: asked, target: parsers, run: benchmarks/counted.py, needs: [parsers/python]}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The runner in a small repository."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from run_steps import main

    folder = tmp_path / "benchmarks"
    for name in (folder, tmp_path / "src", tmp_path / "data"):
        name.mkdir()
    (folder / "steps.yaml").write_text(STEPS)
    (folder / "lines.py").write_text("LINE = 'ran\\n'\n")
    (folder / "counted.py").write_text(COUNT.format(name="counted"))
    (folder / "alone.py").write_text(COUNT.format(name="alone"))
    (folder / "page.py").write_text(PAGE)
    (tmp_path / "src" / "module.py").write_text("")
    (tmp_path / "data" / "one.csv").write_text("1\n")
    (tmp_path / "runs.csv").write_text("run 1\n")
    return lambda *arguments: main(arguments, tmp_path)


def times(folder, name):
    path = folder / f"{name}.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_second_call_runs_nothing_and_says_so(run, tmp_path, capsys):
    assert run("proof") == 0
    assert (times(tmp_path, "counted"), times(tmp_path, "alone")) == (1, 1)
    assert "2 passed of 2 steps" in capsys.readouterr().out
    assert run("proof") == 0
    assert (times(tmp_path, "counted"), times(tmp_path, "alone")) == (1, 1)
    assert "2 passed before of 2 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "counted", "alone"),
    [
        ("src/module.py", 2, 2),
        ("benchmarks/lines.py", 2, 2),
        ("benchmarks/counted.py", 2, 1),
        ("data/two.csv", 2, 1),
        ("benchmarks/page.py", 1, 1),
        ("README.md", 1, 1),
    ],
)
def test_what_changed_runs_again(run, tmp_path, file, counted, alone):
    run("proof")
    with (tmp_path / file).open("a") as changed:
        changed.write("\n# changed\n")
    run("proof")
    assert (times(tmp_path, "counted"), times(tmp_path, "alone")) == (counted, alone)


def test_a_failing_step_stops_no_other_and_runs_again(run, tmp_path, capsys):
    (tmp_path / "benchmarks" / "counted.py").write_text("raise ValueError('no such plan')\n")
    assert run("proof") == 1
    said = capsys.readouterr().out
    assert "ValueError: no such plan" in said
    assert "1 passed, 1 failed of 2 steps" in said
    assert run("proof") == 1
    assert "1 passed before, 1 failed of 2 steps" in capsys.readouterr().out


def test_a_step_may_rewrite_its_inputs_and_runs_again_where_they_change(run, tmp_path):
    assert run("refit", "--runs", "runs.csv") == 0
    assert run("refit", "--runs", "runs.csv") == 0
    assert times(tmp_path, "page") == 1
    (tmp_path / "src" / "constant.csv").write_text("by hand\n")
    assert run("refit", "--runs", "runs.csv") == 0
    assert times(tmp_path, "page") == 2
    (tmp_path / "runs.csv").write_text("run 2\n")
    assert run("refit", "--runs", "runs.csv") == 0
    assert (tmp_path / "benchmarks" / "page.md").read_text() == "run 2\n"


def test_a_step_that_lacks_something_does_not_run_and_is_no_failure(run, tmp_path, capsys):
    assert run("refit") == run("parsers") == 0
    said = capsys.readouterr().out
    assert "needs a table of runs" in said
    assert "needs parsers/python" in said
    assert times(tmp_path, "counted") == times(tmp_path, "page") == 0


def test_the_summary_has_all_steps_of_the_target_whatever_was_asked_for(run, tmp_path):
    run("proof", "--only", "alone", "no-such-step")
    page = (tmp_path / "benchmarks" / "proof.md").read_text()
    assert times(tmp_path, "counted") == 0
    assert "| counted | not run |  |  | " in page
    assert "| alone | passed | " in page
    run("proof")
    page = (tmp_path / "benchmarks" / "proof.md").read_text()
    assert "| counted | passed | " in page
    assert "| alone | passed before | " in page


def test_tests_run_slow_ones_and_depend_on_their_helpers(run, tmp_path, monkeypatch):
    from step_table import Step, hash_of, inputs_of

    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("test_one.py", "test_two.py", "cases.py"):
        (tests / name).write_text("")
    step = Step(name="tests", target="proof", tests=("tests/test_one.py",))
    assert step.arguments == ["-m", "pytest", "-m", "slow", "tests/test_one.py"]
    assert {path.name for path in inputs_of(step, tmp_path)} == {"module.py", "test_one.py", "cases.py"}
    before = hash_of(step, "", tmp_path)
    monkeypatch.setattr("platform.python_version", lambda: "3.99")
    assert hash_of(step, "", tmp_path) != before


def test_an_unknown_key_of_the_table_is_refused(run, tmp_path):
    (tmp_path / "benchmarks" / "steps.yaml").write_text("- {name: one, target: proof, runs: x.py}\n")
    with pytest.raises(TypeError, match="runs"):
        run("proof")


def test_two_steps_run_at_a_time_and_the_others_by_themselves(run):
    from threading import Barrier, active_count

    from run_steps import run_all
    from step_page import PASSED, Result
    from step_table import Step

    both, threads = Barrier(2, timeout=60), []
    steps = [
        Step(name="one", target="proof", run="x.py"),
        Step(name="timed", target="proof", run="x.py", alone=True),
        Step(name="two", target="proof", run="x.py"),
    ]

    def ran(step):
        if step.alone:
            threads.append(active_count())
        else:
            both.wait()
        return Result(step.name, PASSED)

    before = active_count()
    assert [result.step for result in run_all(steps, ran)] == ["one", "timed", "two"]
    assert threads == [before]
