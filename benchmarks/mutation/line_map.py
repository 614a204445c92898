"""The map of mutants to tests: which tests reach a mutated line, from the most specific on."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from mutation.draw import Mutant, place_of

HERE = Path(__file__).parent
RECORDER = "mutation_hit_recorder"
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".cache", ".hypothesis")


def copy_tree(tree: Path, copy: Path) -> None:
    """Copy what the tests of a tree need."""
    shutil.copytree(tree, copy, ignore=NOT_COPIED, dirs_exist_ok=True)


def record(tree: Path, folder: Path, mutants: list[Mutant], options: list[str]) -> int:
    """Run the tests in a copy of a tree that records who reaches a mutant, and return pytest's exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="probed-") as name:
        copy = Path(name)
        copy_tree(tree, copy)
        shutil.copy(HERE / "hit_recorder.py", copy / "src" / f"{RECORDER}.py")
        numbers: dict[Path, list[tuple[int, int]]] = defaultdict(list)
        for index, mutant in enumerate(mutants):
            place = place_of(mutant, copy)
            numbers[place.file].append((place.number, index))
        for file, places in numbers.items():
            file.write_text(probed(file.read_text(encoding="utf-8"), places), encoding="utf-8")
        environment = test_environment(copy) | {"MUTATION_MAP": str(folder)}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", RECORDER, *options]
        return subprocess.run(command, cwd=copy, env=environment, preexec_fn=heed_signals).returncode


def heed_signals() -> None:
    """Undo what a shell or nohup does to jobs in the background: some tests send these signals."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def probed(source: str, places: list[tuple[int, int]]) -> str:
    """Put a call before the statement of every place: (line, index of the mutant)."""
    rows = source.splitlines(keepends=True)
    starts = _statement_starts(ast.parse(source), rows)
    for number, index in sorted(places, reverse=True):
        start = max((start for start, end in starts if start <= number <= end), default=None)
        if start is None:
            continue
        indent = rows[start - 1][: len(rows[start - 1]) - len(rows[start - 1].lstrip())]
        rows[start - 1] = f'{indent}__import__("{RECORDER}").hit({index})\n{rows[start - 1]}'
    return "".join(rows)


def _statement_starts(tree: ast.Module, rows: list[str]) -> list[tuple[int, int]]:
    """First and last line of every statement that another one may precede on a line of its own."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            before = rows[start - 1].encode()[: node.col_offset]
            if not before.strip() and not rows[start - 1].lstrip().startswith("elif "):
                found.append((start, node.end_lineno or start))
    return found


def test_environment(tree: Path) -> dict[str, str]:
    """Return the environment in which the tests of a tree import its own sources and draw the same examples."""
    own = {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "", "CI": "true"}
    return dict(os.environ) | own


class LineMap:
    """The recorded map of one tree."""

    def __init__(self, folder: Path) -> None:
        """Read the map."""
        self.results: dict[str, tuple[float, bool]] = {}
        for path in folder.glob("results-*.json"):
            self.results |= {test: tuple(entry) for test, entry in json.loads(path.read_text()).items()}
        self._tests: dict[int, set[str]] = defaultdict(set)
        self._reached: dict[str, int] = defaultdict(int)
        for line in set((folder / "hits.tsv").read_text(encoding="utf-8").splitlines()):
            number, _, test = line.partition("\t")
            self._tests[int(number)].add(test)
            self._reached[test] += 1

    def tests_of(self, index: int) -> list[str]:
        """Return the passing tests that reach a mutant, one case of every test before the second of any.

        Tests that reach the fewest mutants come first, then the quickest.
        """
        passing = [test for test in self._tests[index] if self.results.get(test, (0.0, False))[1]]
        passing.sort(key=lambda test: (self._reached[test], self.results[test][0], test))
        seen: Counter[str] = Counter()
        turns = {}
        for test in passing:
            name = test.partition("[")[0]
            turns[test] = seen[name]
            seen[name] += 1
        return sorted(passing, key=turns.__getitem__)
