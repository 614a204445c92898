"""A pytest plugin that records which test executes which line, ranks forked by a test included.

``MUTATION_MAP`` names the folder for the data of ``coverage``, one file a process, and for the seconds and outcomes of
tests; ``MUTATION_FILES`` the files whose lines are recorded. Each test is a context of coverage, so that the line of a
file leads to the tests.
"""

import json
import os
from multiprocessing import process, util
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["MUTATION_MAP"])
SECONDS_TO_SAVE = 10.0

recorder = coverage.Coverage(
    data_file=str(FOLDER / "lines"),
    data_suffix=True,
    config_file=False,
    include=os.environ["MUTATION_FILES"].split(os.pathsep),
    messages=False,
)
recorder.set_option("run:disable_warnings", ["no-data-collected"])
results: dict[str, list[object]] = {}
killed = process.BaseProcess.kill


def _wait_before_kill(self: process.BaseProcess) -> None:
    """Leave a rank that has ended its work the time to save its lines."""
    self.join(SECONDS_TO_SAVE)
    killed(self)


def _save_at_exit(_: object) -> None:
    util.Finalize(None, recorder.save, exitpriority=0)


def pytest_configure() -> None:
    """Start to record before tests are collected."""
    process.BaseProcess.kill = _wait_before_kill  # type: ignore[method-assign]
    util.register_after_fork(recorder, _save_at_exit)
    recorder.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):  # type: ignore[no-untyped-def]
    """Record the lines of a test under its name."""
    recorder.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        recorder.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the seconds of set-up, call and tear-down, and keep whether all of them passed."""
    seconds, passed = results.setdefault(report.nodeid, [0.0, True])
    results[report.nodeid] = [seconds + report.duration, passed and report.outcome == "passed"]  # type: ignore[operator]


def pytest_unconfigure() -> None:
    """Write the lines, and the results of the tests that ran in this process."""
    recorder.stop()
    recorder.save()
    if results:
        (FOLDER / f"results-{os.getpid()}.json").write_text(json.dumps(results), encoding="utf-8")
