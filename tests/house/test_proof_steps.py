"""Every page under benchmarks/ and every slow test belongs to one step of `make proof`, `refit` or `parsers`."""

import re
import sys
from functools import cache

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))
import step_table
from step_table import RUNS, TARGETS, inputs_of, read_steps

STEPS = read_steps(ROOT)
SUMMARIES = {f"{target}.md" for target in TARGETS}
OF_TWO_TREES = {"source-mutants.md"}
"""Pages that compare two trees by a command that they name; no step can."""
MARKS_SLOW = re.compile(r"mark\.(?:slow|quick_cases)")


@cache
def files_of(root, pattern):
    """The files of a pattern, which stay as they are while tests run."""
    return tuple(LOOK_UP(root, pattern))


LOOK_UP = step_table._files


@pytest.fixture(autouse=True)
def files_are_looked_up_once(monkeypatch):
    monkeypatch.setattr(step_table, "_files", files_of)


def test_every_page_is_written_by_one_step():
    pages = {path.name for path in (ROOT / "benchmarks").glob("*.md")} - SUMMARIES - OF_TWO_TREES
    written = [path.removeprefix("benchmarks/") for step in STEPS for path in step.writes]
    assert sorted(path for path in written if path.endswith(".md")) == sorted(pages)


def test_every_slow_test_belongs_to_one_step():
    slow = [path for path in (ROOT / "tests").rglob("test_*.py") if MARKS_SLOW.search(path.read_text())]
    steps = {
        path.relative_to(ROOT).as_posix(): [
            step.name for step in STEPS if any(path.is_relative_to(ROOT / place) for place in step.tests)
        ]
        for path in slow
    }
    assert not {path: names for path, names in steps.items() if len(names) != 1}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_has_a_target_one_kind_of_work_and_inputs_that_exist(step):
    assert step.target in TARGETS
    assert bool(step.run) != bool(step.tests)
    assert inputs_of(step, ROOT)
    patterns = (*step.run.split()[:1], *step.tests, *step.inputs, *step.writes)
    assert not [pattern for pattern in patterns if not any(ROOT.glob(pattern))]
    text = (ROOT / step.run.split()[0]).read_text(encoding="utf-8") if step.run else ""
    assert not [path for path in step.writes if path.endswith(".md") and path.split("/")[-1] not in text]
    assert (RUNS in step.arguments) == ("RUNS.csv" in text)


def test_names_of_steps_are_unique():
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
