"""Read the assertions of a framework's argument checks from its syntax trees.

Every ``assert`` and every ``raise`` of the functions in ``sources.csv`` is one assertion: what it requires, and where,
by the ``if`` statements around it. The last ``if`` around a ``raise`` is what it refuses. The key is a hash of the
file, the function and both conditions, so that a changed condition is a new assertion.
"""

import ast
import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
SHORT = 150
"""Characters of a condition that a table shows."""
NAMESPACES = ("args.", "self.", "config.", "kwargs.")
_PAIRS: tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...] = (
    (ast.Eq, ast.NotEq),
    (ast.Lt, ast.GtE),
    (ast.LtE, ast.Gt),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
)
OPPOSITES = dict(_PAIRS) | {second: first for first, second in _PAIRS}


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion; ``requires`` holds where all conditions of ``where`` do."""

    key: str
    file: str
    function: str
    requires: str
    where: str


def read_assertions(folder: Path, target: str) -> list[Assertion]:
    """Return the assertions of a target below an environment, or a folder with its unpacked wheel."""
    found: list[Assertion] = []
    for row in _sources(target):
        path = _source_file(folder, row["file"])
        tree = ast.parse(path.read_text(encoding="utf-8"))
        patterns = row["functions"].split()
        for function, conditions, requires in _checks(tree.body, (), ()):
            if any(fnmatch(function, pattern) for pattern in patterns):
                found.append(_assertion(row["file"], function, conditions, requires))
    return _distinct(found)


def _sources(target: str) -> list[dict[str, str]]:
    with (HERE / "sources.csv").open(encoding="utf-8") as lines:
        return [row for row in csv.DictReader(lines) if row["target"] == target]


def _source_file(folder: Path, name: str) -> Path:
    """Return the path of a source. Raises FileNotFoundError where the folder has no such file."""
    for path in (folder / name, *sorted(folder.glob(f"lib/python3*/site-packages/{name}"))):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder} has no {name}")


Check = tuple[str, tuple[str, ...], str]
"""Function, conditions of the statements around it, and what an ``assert`` tests; empty for a ``raise``."""


def _checks(body: list[ast.stmt], names: tuple[str, ...], conditions: tuple[str, ...]) -> Iterator[Check]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield from _checks(statement.body, (*names, statement.name), ())
            case ast.If():
                test = statement.test
                yield from _checks(statement.body, names, (*conditions, ast.unparse(test)))
                yield from _checks(statement.orelse, names, (*conditions, _negated(test)))
            case ast.Assert():
                yield ".".join(names), conditions, ast.unparse(statement.test)
            case ast.Raise():
                yield ".".join(names), conditions, ""
            case _:
                for part in ("body", "orelse", "finalbody"):
                    yield from _checks(getattr(statement, part, []), names, conditions)
                for case in getattr(statement, "cases", []):
                    yield from _checks(case.body, names, (*conditions, f"case({ast.unparse(case.pattern)})"))
                for handler in getattr(statement, "handlers", []):
                    kind = ast.unparse(handler.type) if handler.type else "any error"
                    yield from _checks(handler.body, names, (*conditions, f"caught({kind})"))


def _negated(test: ast.expr) -> str:
    """Return the opposite of a condition; a comparison by its opposite operator."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        opposite = OPPOSITES[type(test.ops[0])]()
        return ast.unparse(ast.Compare(test.left, [opposite], test.comparators))
    return ast.unparse(ast.UnaryOp(ast.Not(), test))


def _assertion(file: str, function: str, conditions: tuple[str, ...], requires: str) -> Assertion:
    where = conditions
    if not requires and conditions:
        *rest, refused = conditions
        where, requires = tuple(rest), _negated(ast.parse(refused, mode="eval").body)
    text = "\n".join((file, function, *where, "requires", requires))
    key = sha256(text.encode()).hexdigest()[:8]
    return Assertion(key, file, function, _shown(requires or "never"), _shown("; ".join(where)))


def _shown(text: str) -> str:
    for name in NAMESPACES:
        text = text.replace(name, "")
    text = " ".join(text.split())
    return text if len(text) <= SHORT else text[: SHORT - 1].rstrip() + "…"


def _distinct(found: list[Assertion]) -> list[Assertion]:
    """Number the keys of assertions that stand twice in a function."""
    seen: Counter[str] = Counter()
    kept = []
    for assertion in found:
        seen[assertion.key] += 1
        count = seen[assertion.key]
        kept.append(assertion if count == 1 else replace(assertion, key=f"{assertion.key}-{count}"))
    return kept
