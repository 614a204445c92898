"""What ``check`` says of the published configurations under ``benchmarks/check``: faults named, no false alarms."""

import re
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FEWEST = {"megatron": 8, "torchtitan": 3, "deepspeed": 3, "accelerate": 2, "bridge": 2}


@pytest.fixture(scope="module")
def benchmark():
    spec = spec_from_file_location("benchmark_check", BENCHMARKS / "check.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def files_of(cases):
    models = {case.model for case in cases if case.model.endswith(".json")}
    return {case.file for case in cases} | models


def test_twenty_faulty_and_twenty_good_configurations_each_have_a_source(benchmark):
    cases = benchmark.cases()
    assert Counter(case.kind for case in cases) == {"faulty": 20, "good": 20}
    assert all(case.source for case in cases)


def test_the_table_names_every_file_of_the_folder_and_no_other(benchmark):
    kept = (path.relative_to(benchmark.FOLDER) for path in benchmark.FOLDER.glob("*/*") if path.is_file())
    assert files_of(benchmark.cases()) == {path.as_posix() for path in kept}


@pytest.mark.parametrize("kind", ["faulty", "good"])
def test_every_format_is_among_the_cases_of_a_kind(benchmark, kind):
    formats = Counter(case.format for case in benchmark.cases() if case.kind == kind)
    fewest = FEWEST if kind == "faulty" else dict.fromkeys(FEWEST, 1)
    assert all(formats[name] >= number for name, number in fewest.items())
    assert set(formats) == set(FEWEST)


def test_only_faulty_ones_expect_a_problem_and_none_that_anything_matches(benchmark):
    for case in benchmark.cases():
        assert bool(case.expected) == bool(case.fault) == (case.kind == "faulty")
        assert not case.expected or not re.search(case.expected, "")


def test_a_fault_that_no_problem_matches_is_not_counted_as_named(benchmark):
    case = next(case for case in benchmark.cases() if case.expected == "does not fit")
    other = benchmark.Problem("memory_bytes.total", "1", "fits")
    naming = benchmark.Problem("memory_bytes.total", "1", "does not fit", severity="warning")
    assert benchmark.named([benchmark.Verdict(case, (other,))]) == 0
    assert benchmark.named([benchmark.Verdict(case, (other, naming))]) == 1
