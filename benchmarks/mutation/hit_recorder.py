"""A module and pytest plugin that records which test reaches which mutated line, in whatever process it runs.

``probed`` puts a call of ``hit`` before the statement of each mutant. pytest names the running test in the environment,
which ranks and commands that a test starts inherit. ``MUTATION_MAP`` names the folder of the records.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

FOLDER = Path(os.environ["MUTATION_MAP"])
HITS = os.open(FOLDER / "hits.tsv", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
seen: set[tuple[int, str]] = set()
results: dict[str, list[object]] = {}


def hit(number: int) -> None:
    """Record that the running test reaches a mutant."""
    entry = number, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if entry not in seen:
        seen.add(entry)
        with suppress(OSError):  # a test may forbid large files
            os.write(HITS, "{}\t{}\n".format(*entry).encode())


def pytest_runtest_logreport(report) -> None:  # type: ignore[no-untyped-def]
    """Add the seconds of set-up, call and tear-down, and keep whether all of them passed."""
    seconds, passed = results.setdefault(report.nodeid, [0.0, True])
    results[report.nodeid] = [seconds + report.duration, passed and report.outcome == "passed"]  # type: ignore[operator]


def pytest_unconfigure() -> None:
    """Write the results of the tests that ran in this process."""
    if results:
        (FOLDER / f"results-{os.getpid()}.json").write_text(json.dumps(results), encoding="utf-8")
