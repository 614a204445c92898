"""The plans of the page under benchmarks/, emulated again: simulated times hold, and a blocking send does not pass."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import emulation  # noqa: E402

from meshwright.schedule import SCHEDULES  # noqa: E402
from meshwright.schedule.vocabulary import FORMS  # noqa: E402

EXPOSED = 0.10
WHOLE = (*emulation.CASES, *emulation.EVERY)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """No rows of earlier runs."""
    monkeypatch.setattr(emulation, "ROWS", tmp_path / "rows.json")


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
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


def test_the_page_has_every_schedule_and_only_good_news_that_is_true():
    assert {case.schedule for case in emulation.EVERY} == set(SCHEDULES)
    assert {case.vocabulary for case in emulation.EVERY} == {None, *FORMS}
    assert {case.chunks for case in emulation.EVERY if case.solved} == {1, 2}
    assert all((case.layout["pp"], case.batch) == (4, 12) for case in emulation.EVERY)
    assert len({emulation.key(case) for case in WHOLE}) == len(WHOLE) >= 40
    known = {emulation.key(case) for case in (*WHOLE, *emulation.FAULTY)}
    assert known == emulation.known().keys(), "run benchmarks/emulation.py --write"
    rows = [emulation.known()[emulation.key(case)] for case in WHOLE]
    assert all(emulation.difference(row) <= emulation.WITHIN and row["peaks_equal"] for row in rows)
    page = (BENCHMARKS / "emulation.md").read_text(encoding="utf-8")
    assert all(emulation.plan_line(case, row) in page for case, row in zip(WHOLE, rows, strict=True))
