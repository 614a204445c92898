"""Run the tests of one mutant in a copy of a tree, until one fails or three minutes are over."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from mutation.draw import Mutant, Place
from mutation.line_map import LineMap, heed_signals, test_environment

LIMIT_S = 180
MOST_TESTS = 400
"""Further tests of a line execute it in the same ways."""
FAILED = ("FAILED", "ERROR")
PASSED, SOME_FAILED = 0, 1
"""Exit codes of a pytest that ran all tests."""
OPTIONS = ("-q", "--no-header", "--tb=no", "-p", "no:cacheprovider")
CAUGHT, SURVIVED, TIMED_OUT, NOT_EXECUTED = "caught", "survived", "out of time", "not executed"


def try_mutant(mutant: Mutant, place: Place, tests: list[str], lines: LineMap, copy: Path) -> dict[str, Any]:
    """Run the tests that reach the mutated line and return what became of the mutant."""
    entry: dict[str, Any] = {"number": place.number, "tests": len(tests)}
    if not tests:
        return entry | {"result": NOT_EXECUTED}
    return entry | run_mutated([(mutant, place)], copy, _within_limit(tests, lines))


def run_mutated(
    mutants: Sequence[tuple[Mutant, Place]], copy: Path, arguments: list[str], limit_s: float | None = LIMIT_S
) -> dict[str, Any]:
    """Run pytest with these arguments until the first failure, while the lines of these places are mutated."""
    with mutated(mutants):
        return _first_failure(copy, arguments, limit_s)


@contextmanager
def mutated(mutants: Sequence[tuple[Mutant, Place]]) -> Iterator[None]:
    """Change the lines of these places, no two of which are one, and change them back at the end."""
    sources = {place.file: place.file.read_text(encoding="utf-8") for _, place in mutants}
    assert len({place for _, place in mutants}) == len(mutants), "two mutants of one line"
    changed = {file: source.splitlines(keepends=True) for file, source in sources.items()}
    for mutant, place in mutants:
        rows, number = changed[place.file], place.number
        assert rows[number - 1].strip() == mutant.line, "the copy is not of the tree that was mapped"
        rows[number - 1] = rows[number - 1].replace(mutant.line, mutant.mutated)
    try:
        for file, rows in changed.items():
            _write(file, "".join(rows))
        yield
    finally:
        for file, source in sources.items():
            _write(file, source)


def _write(file: Path, source: str) -> None:
    """Write a module and forget what it was compiled to: a clock of seconds would not tell the two apart."""
    file.write_text(source, encoding="utf-8")
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def failures(copy: Path, arguments: list[str]) -> list[str]:
    """Run pytest with these arguments and return the tests that fail. Raises RuntimeError if it runs none."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments]
    done = subprocess.run(
        command, cwd=copy, env=test_environment(copy), capture_output=True, text=True, preexec_fn=heed_signals
    )
    if done.returncode not in (PASSED, SOME_FAILED):
        raise RuntimeError(
            f"pytest did not run the tests (exit code {done.returncode}):\n{done.stdout[-2000:]}"
        )
    return [
        line.split(" - ")[0].split(" ", 1)[1] for line in done.stdout.splitlines() if line.startswith(FAILED)
    ]


def _first_failure(copy: Path, arguments: list[str], limit_s: float | None) -> dict[str, Any]:
    listed = copy / "mutant-tests.txt"
    listed.write_text("\n".join(arguments), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:randomly", *OPTIONS, f"@{listed}"]
    with subprocess.Popen(
        command,
        cwd=copy,
        env=test_environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    ) as running:
        try:
            output, _ = running.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-KILL", "-s", str(running.pid)])
            return {"result": TIMED_OUT}
    failed = [line for line in output.splitlines() if line.startswith(FAILED)]
    if running.returncode == 0:
        return {"result": SURVIVED}
    return {"result": CAUGHT, "by": (failed or output.splitlines()[-1:] or [""])[0][:200]}


def _within_limit(tests: list[str], lines: LineMap) -> list[str]:
    """Return the first tests that fit into the limit by their recorded seconds."""
    chosen, seconds = [], 0.0
    for test in tests[:MOST_TESTS]:
        seconds += lines.results[test][0]
        if seconds > LIMIT_S and chosen:
            break
        chosen.append(test)
    return chosen
