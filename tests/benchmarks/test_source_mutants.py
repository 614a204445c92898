"""Mutants of sources: where a probe stands, and which tests are asked first."""

import json
import sys

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks"))
from mutation.draw import Mutant, Place
from mutation.line_map import RECORDER, LineMap, probed
from mutation.trial import failures, mutated

SOURCE = """\
import functools

LIMIT = 3


@functools.cache
def grade(value):
    if value > LIMIT:
        return "high"
    elif value > 1:
        return [
            letter
            for letter in "low"
        ]
    return "none"
"""


@pytest.mark.parametrize(
    ("line", "reached"), [(3, {"import"}), (7, {"import"}), (8, {0, 2, 5}), (9, {5}), (13, {2}), (15, {0})]
)
def test_a_probe_tells_who_reaches_the_statement_of_a_line(line, reached, monkeypatch):
    told, now = set(), "import"
    recorder = type(sys)(RECORDER)
    recorder.hit = lambda index: told.add(now)
    monkeypatch.setitem(sys.modules, RECORDER, recorder)
    names = {}
    exec(probed(SOURCE, [(line, 0)]), names)
    for now in (0, 2, 5):
        names["grade"](now)
    assert told == reached


def test_all_lines_can_be_probed_at_once():
    exec(compile(SOURCE, "source", "exec"), plain := {})
    every = probed(SOURCE, [(line, line) for line in range(1, 16) if SOURCE.splitlines()[line - 1]])
    recorder = type(sys)(RECORDER)
    recorder.hit = lambda index: None
    sys.modules[RECORDER] = recorder
    try:
        exec(every, names := {})
        assert [names["grade"](value) for value in range(5)] == [plain["grade"](value) for value in range(5)]
    finally:
        del sys.modules[RECORDER]


def test_passing_tests_come_from_the_most_specific_on_and_cases_in_turns(tmp_path):
    hits = {0: ["wide", "narrow[a]", "narrow[b]", "failing", ""], 1: ["wide"]}
    (tmp_path / "hits.tsv").write_text("".join(f"{i}\t{test}\n" for i in hits for test in hits[i]))
    results = {
        "wide": [0.1, True],
        "narrow[a]": [9.0, True],
        "narrow[b]": [5.0, True],
        "failing": [0.1, False],
    }
    (tmp_path / "results-1.json").write_text(json.dumps(results))
    lines = LineMap(tmp_path)
    assert [lines.tests_of(0), lines.tests_of(1), lines.tests_of(2)] == [
        ["narrow[b]", "wide", "narrow[a]"],
        ["wide"],
        [],
    ]


def test_lines_are_mutated_together_and_come_back(tmp_path):
    file = tmp_path / "grades.py"
    file.write_text(SOURCE)
    limit = Mutant("plans", "LIMIT = 3", 8, 9, "4")
    low = Mutant("plans", "elif value > 1:", 13, 14, "2")
    with mutated([(limit, Place(file, 3)), (low, Place(file, 10))]):
        exec(file.read_text(), names := {})
        assert [names["grade"](value) for value in (2, 4, 5)] == ["none", ["l", "o", "w"], "high"]
    assert file.read_text() == SOURCE


def test_failing_tests_are_named_and_a_run_without_tests_is_no_success(tmp_path):
    (tmp_path / "test_two.py").write_text("def test_good(): pass\ndef test_bad(): assert 0\n")
    assert failures(tmp_path, ["test_two.py"]) == ["test_two.py::test_bad"]
    assert failures(tmp_path, ["test_two.py::test_good"]) == []
    with pytest.raises(RuntimeError, match="did not run"):
        failures(tmp_path, ["test_three.py"])
