"""Show that tests protect the code: change one token of a line at a time and see whether a test fails.

    python benchmarks/source_mutants.py draw MUTANTS.json TREE [TREE] [--count 150] [--seed 1]
    python benchmarks/source_mutants.py map TREE FOLDER MUTANTS.json [-- PYTEST OPTIONS]
    python benchmarks/source_mutants.py try TREE FOLDER MUTANTS.json RESULTS.json [--workers 2]
    python benchmarks/source_mutants.py everything TREE FOLDER MUTANTS.json RESULTS.json [--count 10]
    python benchmarks/source_mutants.py page MUTANTS.json BEFORE.json AFTER.json > benchmarks/source-mutants.md

``draw`` takes the mutants that both trees have, equally from the packages of ``mutation/draw.py``. ``map`` runs the
tests of a tree once and records in FOLDER which test reaches which mutated line, ranks and commands that a test starts
included. ``try`` runs every mutant against the tests that reach it, the most specific first, until one fails or three
minutes are over; RESULTS.json grows with each, and a second call goes on. ``everything`` runs all tests with some drawn
survivors at once, at most one of a line, and what fails then with each of them alone; mutants that ran out of time are
not drawn, since they may never end. What survives, runs out of time or is reached by no test counts as not caught.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from mutation.draw import PACKAGES, Mutant, draw, place_of
from mutation.line_map import LineMap, copy_tree, record
from mutation.trial import CAUGHT, SURVIVED, failures, mutated, run_mutated, try_mutant

Results = dict[str, dict[str, Any]]
ALL_TESTS = ["-m", "not slow", "--ignore=tests/house", "tests"]


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    own, _, options = " ".join(sys.argv[1:]).partition(" -- ")
    arguments = parser.parse_args(own.split())
    COMMANDS[arguments.command](arguments, options.split())


def _draw(arguments: argparse.Namespace, _: list[str]) -> None:
    target, *trees = arguments.paths
    mutants = draw([tree.resolve() for tree in trees], arguments.count, arguments.seed)
    target.write_text(json.dumps([mutant.to_dict() for mutant in mutants], indent=1) + "\n", encoding="utf-8")


def _map(arguments: argparse.Namespace, options: list[str]) -> None:
    tree, folder, mutants = arguments.paths
    options = options or ["-n", str(arguments.workers), "--ignore=tests/house"]
    raise SystemExit(record(tree.resolve(), folder.resolve(), _mutants(mutants), options))


def _try(arguments: argparse.Namespace, _: list[str]) -> None:
    tree, folder, path, target = arguments.paths
    lines, results, mutants = LineMap(folder.resolve()), _read(target), _mutants(path)
    tests = {_key(mutant): lines.tests_of(index) for index, mutant in enumerate(mutants)}
    assert any(tests.values()), "no test has reached a mutant"

    def attempt(mutant: Mutant, copy: Path) -> None:
        results[_key(mutant)] = try_mutant(mutant, place_of(mutant, copy), tests[_key(mutant)], lines, copy)

    missing = [one for one in mutants if _key(one) not in results]
    _each(missing, attempt, tree.resolve(), target, results, arguments)


def _everything(arguments: argparse.Namespace, _: list[str]) -> None:
    """Run all tests with drawn survivors at once, one of a line; what fails then is run with each alone."""
    tree, _, path, target = arguments.paths
    results = _read(target)
    survived = [one for one in _mutants(path) if results[_key(one)]["result"] == SURVIVED]
    survivors = list({(one.package, one.line): one for one in survived}.values())
    drawn = random.Random(arguments.seed).sample(survivors, min(arguments.count, len(survivors)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copy_tree(tree.resolve(), copy)
        places = [(one, place_of(one, copy)) for one in drawn]
        with mutated(places):
            failed = failures(copy, [*ALL_TESTS, "-n", str(arguments.workers), "--dist", "loadfile"])
        print(*failed, sep="\n", flush=True)
        for mutant, place in places:
            alone = (
                run_mutated([(mutant, place)], copy, failed, limit_s=None) if failed else {"result": SURVIVED}
            )
            results[_key(mutant)] |= {"everything": alone}
            print(mutant.mutated, alone, flush=True)
    _record(results, target)


def _each(
    mutants: list[Mutant],
    attempt: Callable[[Mutant, Path], None],
    tree: Path,
    target: Path,
    results: Results,
    arguments: argparse.Namespace,
) -> None:
    """Attempt every mutant, each worker in a copy of its own, and write the results after each."""
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(arguments.workers):
            copies.put(Path(folder) / str(number))
            copy_tree(tree, Path(folder) / str(number))

        def one(mutant: Mutant) -> None:
            copy = copies.get()
            try:
                attempt(mutant, copy)
            finally:
                copies.put(copy)
            _record(results, target)
            print(f"{len(results):4}  {mutant.mutated}  {results[_key(mutant)]}", flush=True)

        with ThreadPoolExecutor(arguments.workers) as pool:
            list(pool.map(one, mutants))


def _record(results: Results, target: Path) -> None:
    target.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _page(arguments: argparse.Namespace, _: list[str]) -> None:
    path, *recorded = arguments.paths
    mutants, (before, after) = _mutants(path), map(_read, recorded)
    print(PAGE.format(count=len(mutants), caught_before=_caught(before), caught_after=_caught(after)))
    print("| package | mutants | caught before | caught after |\n| --- | --- | --- | --- |")
    for package in PACKAGES:
        keys = [_key(one) for one in mutants if one.package == package]
        counts = [sum(of[key]["result"] == CAUGHT for key in keys) for of in (before, after)]
        print(f"| {package} | {len(keys)} | {counts[0]} | {counts[1]} |")
    print("\n| outcome | before | after |\n| --- | --- | --- |")
    outcomes = [Counter(entry["result"] for entry in of.values()) for of in (before, after)]
    for outcome in sorted({*outcomes[0], *outcomes[1]}):
        print(f"| {outcome} | {outcomes[0][outcome]} | {outcomes[1][outcome]} |")
    for name, of in (("before", before), ("after", after)):
        whole = [entry["everything"]["result"] for entry in of.values() if "everything" in entry]
        if whole:
            print(f"\nOf {len(whole)} drawn survivors {name}, {whole.count(SURVIVED)} survive all tests.")
    print("\n## Caught in one tree only\n\n| mutated line | before | after |\n| --- | --- | --- |")
    for mutant in mutants:
        pair = [of[_key(mutant)] for of in (before, after)]
        if (pair[0]["result"] == CAUGHT) != (pair[1]["result"] == CAUGHT):
            print(f"| `{_cell(mutant.mutated)}` | {_how(pair[0])} | {_how(pair[1])} |")


PAGE = """# Source mutants

Of {count} mutants of the source, each with one token changed, the tests caught {caught_before} before the tree was
sorted and the tests were shortened, and {caught_after} after. Each ran against the tests that execute its line, at
most three minutes. Written by `python benchmarks/source_mutants.py page` (see there how to repeat it).
"""


def _how(entry: dict[str, Any]) -> str:
    failed = _cell(entry.get("by", "").removeprefix("FAILED "))
    return f"{entry['result']}: `{failed}`" if failed else entry["result"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _caught(results: Results) -> int:
    return sum(entry["result"] == CAUGHT for entry in results.values())


def _key(mutant: Mutant) -> str:
    return f"{mutant.package}: {mutant.line} -> {mutant.mutated}"


def _mutants(path: Path) -> list[Mutant]:
    return [Mutant(**row) for row in json.loads(path.read_text(encoding="utf-8"))]


def _read(path: Path) -> Results:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


COMMANDS = {"draw": _draw, "map": _map, "try": _try, "everything": _everything, "page": _page}


if __name__ == "__main__":
    main()
