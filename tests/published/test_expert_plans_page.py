"""The page of experts' plans: the published ones are those that were published; what it says of some is found again."""

import csv
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.search.algorithms.exhaustive import TIE

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TABLE_1 = {
    "1.7B": (1, 1, 32, 512),
    "3.6B": (2, 1, 64, 512),
    "7.5B": (4, 1, 128, 512),
    "18.4B": (8, 1, 256, 1024),
    "39.1B": (8, 2, 512, 1536),
    "76.1B": (8, 4, 1024, 1792),
    "145.6B": (8, 8, 1536, 2304),
    "310.1B": (8, 16, 1920, 2160),
    "529.6B": (8, 35, 2520, 2520),
    "1008B": (8, 64, 3072, 3072),
}
"""tp, pp, devices and batch of arXiv 2104.04473, table 1."""
FOUND_AGAIN = ("Megatron 1.7B", "Megatron 18.4B", "llama3-70b, nvfp4, 64 GB300", "llama3-70b, fp8, 64 GB200")


@pytest.fixture(scope="module")
def experts():
    sys.path.insert(0, str(BENCHMARKS))
    import expert_plans

    yield expert_plans
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def cases(experts):
    return {case.run.run_id: case for case in experts.cases()}


@pytest.fixture(scope="module")
def said():
    """The cells of every line of the page's table by run."""
    text = (BENCHMARKS / "expert-plans.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in re.findall(r"^\| .+ \|$", text, re.MULTILINE)]
    return {cells[0]: cells for cells in lines if cells[0] != "run"}


def test_the_ten_of_megatron_are_those_of_the_paper(cases):
    for size, figures in TABLE_1.items():
        run = cases[f"Megatron {size}"].run
        assert (run.chosen.tp, run.chosen.pp, run.given.devices, run.given.global_batch) == figures


def test_every_published_plan_stands_on_the_page_once(cases, said):
    with (BENCHMARKS / "expert-plans" / "runs.csv").open(encoding="utf-8") as lines:
        names = [line["run_id"] for line in csv.DictReader(lines)]
    assert max(Counter(names).values()) == 1
    assert list(said) == names == list(cases)
    families = Counter(case.run.source.partition(",")[0] for case in cases.values())
    assert families["Megatron-Bridge 26.02"] == 31
    assert {"arXiv 2104.04473", "arXiv 2407.21783", "arXiv 2412.19437", "arXiv 2211.05100"} < set(families)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_AGAIN)
def test_what_the_page_says_is_found_again(experts, cases, said, name):
    line = experts.line_of(cases[name])
    assert said[name] == experts.row_of(line).strip("| ").split(" | "), (
        "run benchmarks/expert_plans.py --write"
    )
    assert line.ours.fits
    assert line.theirs is None or line.verdict == experts.UNFIT or line.change <= TIE
    assert all(sentence in experts.reason_of(line) for sentence in line.against.summary)


@pytest.mark.slow
def test_a_plan_is_a_tie_up_to_the_ratio_and_illegal_where_a_rule_forbids_it(experts, cases):
    case = cases["llama3-70b, nvfp4, 64 GB300"]
    line = experts.line_of(case)
    assert line.verdict == experts.TIE
    twice = replace(line.ours, step_time_s=line.ours.step_time_s / 2)
    assert replace(line, ours=twice).verdict == experts.QUICKER
    longer = replace(line.ours, step_time_s=2 * line.ours.step_time_s)
    assert replace(line, ours=longer).verdict == experts.SLOWER
    forbidden = replace(
        line, case=replace(case, plan="layout.tp = 3: breaks a rule"), theirs=None, against=None
    )
    assert forbidden.verdict == experts.ILLEGAL
    assert "layout.tp = 3: breaks a rule" in experts.reason_of(forbidden)
    assert "| illegal | 4.82 |  |  |  |" in experts.row_of(forbidden)
