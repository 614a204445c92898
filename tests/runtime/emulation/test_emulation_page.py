"""The plans of the page under benchmarks/, emulated again: simulated times hold, and a blocking send does not pass."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import emulation  # noqa: E402

EXPOSED = 0.10


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """No rows of earlier runs."""
    monkeypatch.setattr(emulation, "ROWS", tmp_path / "rows.json")


@pytest.mark.slow
@pytest.mark.parametrize("case", emulation.CASES, ids=lambda case: case.name)
def test_a_plan_takes_the_simulated_time(case, fresh):
    found = emulation.row(case)
    assert 0 <= emulation.difference(found) + 1e-9 <= emulation.WITHIN
    assert found["peaks_equal"]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "v-half"])
def test_a_blocking_send_is_exposed(schedule, fresh):
    cases = tuple(case for case in emulation.FAULTY if case.schedule == schedule)
    found = {case.fault: row for case, row in emulation.rows(cases)}
    assert emulation.difference(found[emulation.BLOCKED]) >= EXPOSED


def test_the_page_has_plans_of_every_kind_and_only_good_news_that_is_true():
    kinds = {case.schedule for case in emulation.CASES}
    assert {"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-h2", "v-half", "v-min"} <= kinds
    assert len({emulation.key(case) for case in emulation.CASES}) == len(emulation.CASES) >= 20
    known = {emulation.key(case) for case in (*emulation.CASES, *emulation.FAULTY)}
    assert known == emulation.known().keys(), "run benchmarks/emulation.py --write"
    rows = [emulation.known()[emulation.key(case)] for case in emulation.CASES]
    assert all(emulation.difference(row) <= emulation.WITHIN and row["peaks_equal"] for row in rows)
    page = (BENCHMARKS / "emulation.md").read_text(encoding="utf-8")
    lines = zip(emulation.CASES, rows, strict=True)
    assert all(emulation.plan_line(case, row) in page for case, row in lines)
