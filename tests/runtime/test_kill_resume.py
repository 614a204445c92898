"""Jobs that are killed at random moments, also while they save, end as if nothing had happened."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_job_that_is_killed_at_random_moments_takes_the_same_way(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from kill_resume import KILLS, names, proven

    for name in names():
        course, differences = proven(name)
        assert not differences, name
        assert len(course.kills) == KILLS
        assert course.while_saving >= 3, "hardly any kill came while a checkpoint was written"
