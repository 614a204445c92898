"""Read ``steps.yaml`` and hash the files that a step depends on.

A row of the table is a step:

    name     short, unique
    target   proof, refit, refit-serving or parsers
    run      a Python script with its arguments; {runs} is the table of measured runs
    tests    or: files and folders whose slow tests run
    inputs   files, folders and globs to hash beyond the usual ones
    writes   files and globs that the step rewrites: no inputs, but a changed one makes the step run again
    needs    files without which the step cannot run
    alone    true: nothing runs at the same time, because the step measures time or fills the machine

The hash covers the command, the version of Python, ``pyproject.toml``, ``src``, and for a script the script with all
local modules that it imports; for tests the named files, and everything under ``tests`` that is no test module.
"""

import ast
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

TARGETS = ("proof", "refit", "refit-serving", "parsers")
USUAL = ("src", "pyproject.toml")
LOCAL_MODULES = ("benchmarks", "scripts", "tests")
RUNS = "{runs}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A row of the table. Paths are relative to the root of the repository."""

    name: str
    target: str
    run: str = ""
    tests: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    alone: bool = False

    @property
    def arguments(self) -> list[str]:
        """What follows ``python`` on the command line."""
        return self.run.split() or ["-m", "pytest", "-m", "slow", *self.tests]

    def with_runs(self, runs: str) -> list[str]:
        """Return the arguments with the table of runs in its place."""
        return [runs if word == RUNS else word for word in self.arguments]


def read_steps(root: Path) -> list[Step]:
    """Return all steps in the order of the table."""
    rows = YAML(typ="safe").load(root / "benchmarks" / "steps.yaml")
    return [_step(row) for row in rows]


def _step(row: Mapping[str, Any]) -> Step:
    return Step(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})


def missing(step: Step, runs: str, root: Path) -> list[str]:
    """Return what the step needs and does not find."""
    found = [path for path in step.needs if not (root / path).exists()]
    return [*found, *(["a table of runs"] if RUNS in step.arguments and not runs else [])]


def hash_of(step: Step, runs: str, root: Path) -> str:
    """Return the hash of a step: equal as long as nothing that it depends on has changed."""
    files = _hash_of_files(inputs_of(step, root), root)
    table = sha256((root / runs).read_bytes()).hexdigest() if RUNS in step.arguments and runs else ""
    parts = (step.name, *step.arguments, platform.python_version(), files, table)
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def inputs_of(step: Step, root: Path) -> list[Path]:
    """Return the files that a step depends on, without those that it writes."""
    patterns = (*USUAL, *step.tests, *step.inputs)
    found = {path for pattern in patterns for path in _files(root, pattern)}
    found.update(_helpers(root) if step.tests else _imported(root / step.arguments[0], root))
    return sorted(found - {path for pattern in step.writes for path in _files(root, pattern)})


def hash_of_written(step: Step, root: Path) -> str:
    """Return a hash of the files that a step writes, as they are now."""
    return _hash_of_files([path for pattern in step.writes for path in _files(root, pattern)], root)


def _hash_of_files(paths: list[Path], root: Path) -> str:
    digest = sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(root: Path, pattern: str) -> Iterator[Path]:
    for match in root.glob(pattern):
        inside = match.rglob("*") if match.is_dir() else (match,)
        yield from (path for path in inside if path.is_file() and "__pycache__" not in path.parts)


def _helpers(root: Path) -> Iterator[Path]:
    return (path for path in _files(root, "tests") if not path.name.startswith("test_"))


def _imported(script: Path, root: Path) -> set[Path]:
    """Return a script and the local modules that it imports, directly or not."""
    modules = [path for folder in LOCAL_MODULES for path in (root / folder).rglob("*.py")]
    found, left = set(), {script}
    while left:
        path = left.pop()
        found.add(path)
        names = set(_imported_names(ast.parse(path.read_text(encoding="utf-8"))))
        left |= {module for module in modules if module.stem in names} - found
    return found


def _imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[-1] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("meshwright"):
            yield from ((node.module or "").split(".")[-1], *(alias.name for alias in node.names))
