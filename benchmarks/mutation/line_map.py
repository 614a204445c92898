"""The map of lines to tests that ``line_recorder`` leaves: which tests execute a line, from the most specific on."""

import json
import os
import sqlite3
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import coverage
from coverage.numbits import numbits_to_nums

BENCHMARKS = Path(__file__).resolve().parents[1]


def record(tree: Path, folder: Path, files: list[Path], options: list[str]) -> int:
    """Run the tests of a tree with the lines of some files recorded, and return pytest's exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = test_environment(tree) | {"MUTATION_MAP": str(folder)}
    environment["MUTATION_FILES"] = os.pathsep.join(map(str, files))
    environment["PYTHONPATH"] += os.pathsep + str(BENCHMARKS)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "mutation.line_recorder"]
    status = subprocess.run([*command, *options], cwd=tree, env=environment).returncode
    whole = coverage.Coverage(data_file=str(folder / "combined"), config_file=False, messages=False)
    whole.combine([str(path) for path in folder.glob("lines.*")], strict=True)
    whole.save()
    return status


def test_environment(tree: Path) -> dict[str, str]:
    """Return the environment in which the tests of a tree import its own sources and draw the same examples."""
    own = {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    return dict(os.environ) | own


class LineMap:
    """The map of one tree, whose files lay under ``tree`` when it was recorded."""

    def __init__(self, folder: Path, tree: Path) -> None:
        """Open the recorded map."""
        self.tree = tree
        self._data = sqlite3.connect(folder / "combined")
        self.results: dict[str, tuple[float, bool]] = {}
        for path in folder.glob("results-*.json"):
            self.results |= {test: tuple(entry) for test, entry in json.loads(path.read_text()).items()}

    @cached_property
    def lines_of_test(self) -> dict[str, int]:
        """Number of lines that each test executes in the recorded files."""
        counts: dict[str, int] = {}
        query = "select context, numbits from line_bits join context on context.id = context_id"
        for test, bits in self._data.execute(query):
            counts[test] = counts.get(test, 0) + sum(byte.bit_count() for byte in bits)
        return counts

    def tests_of_line(self, file: Path, number: int) -> list[str]:
        """Return the passing tests that execute a line, those that execute the fewest lines first."""
        query = (
            "select context, numbits from line_bits join context on context.id = context_id "
            "join file on file.id = file_id where path = ?"
        )
        rows = self._data.execute(query, [str(self.tree / file)])
        tests = {test for test, bits in rows if number in numbits_to_nums(bits)}
        passing = [test for test in tests if self.results.get(test, (0.0, False))[1]]
        return sorted(passing, key=lambda test: (self.lines_of_test[test], test))
