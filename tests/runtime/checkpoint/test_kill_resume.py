"""The verdict of benchmarks/kill_resume.py, which `make proof` runs: when a killed job counts as undisturbed."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("kills", "while_saving", "wrong", "undisturbed"),
    [
        (34, 17, [], True),
        (33, 17, [], False),
        (34, 16, [], False),
        (34, 17, ["the last checkpoint differs"], False),
    ],
)
def test_a_killed_job_is_undisturbed(kills, while_saving, wrong, undisturbed, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from kill_resume import Course, is_undisturbed

    course = Course(kills=["between steps"] * kills, while_saving=while_saving)
    assert is_undisturbed(course, wrong) == undisturbed
