"""Mutate one token of a line: comparisons, arithmetic, logic, constants, conditions.

Only code inside functions is mutated, and only where an expression stands on one line. Annotations, strings and
assertions stay as they are.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

COMPARED = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is not": "is",
    "is": "is not",
}
COMPUTED = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "//"}
JOINED = {"and": "or", "or": "and"}
SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
LARGEST_CONSTANT = 64


class Edit(NamedTuple):
    """Replace the characters ``start`` to ``end`` of a line (numbered from 1) by ``new``."""

    line: int
    start: int
    end: int
    new: str


def edits_of(source: str) -> list[Edit]:
    """Return all edits of a module's source, by position."""
    lines = source.splitlines()
    found = {edit for function in _functions(ast.parse(source)) for edit in _of_function(function, lines)}
    return sorted(found)


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return (node for node in ast.walk(tree) if isinstance(node, kinds))


def _of_function(function: ast.AST, lines: list[str]) -> Iterator[Edit]:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    for statement in function.body:
        yield from _of_tree(statement, lines)


def _of_tree(node: ast.AST, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node, ast.JoinedStr | ast.Assert | ast.Raise | ast.arguments):
        return
    for kind, edits in EDITS.items():
        if isinstance(node, kind) and _stands_on_one_line(node, lines):
            yield from edits(node, lines)
    annotation = getattr(node, "annotation", None)
    for child in ast.iter_child_nodes(node):
        if child is not annotation:
            yield from _of_tree(child, lines)


def _stands_on_one_line(node: ast.AST, lines: list[str]) -> bool:
    """Columns of the syntax tree count bytes, so that the line must be plain ASCII."""
    assert isinstance(node, ast.expr | ast.stmt)
    return node.lineno == node.end_lineno and lines[node.lineno - 1].isascii()


def _between(left: ast.expr, right: ast.expr, words: dict[str, str], lines: list[str]) -> Iterator[Edit]:
    """Swap the operator between two operands."""
    assert left.end_col_offset is not None
    text = lines[left.lineno - 1][left.end_col_offset : right.col_offset]
    found = re.fullmatch(r"(\)*\s*)(\S+(?: not)?)(\s*\(*)", text)
    if found and found[2] in words:
        start = left.end_col_offset + len(found[1])
        yield Edit(left.lineno, start, start + len(found[2]), words[found[2]])


def _comparison(node: ast.Compare, lines: list[str]) -> Iterator[Edit]:
    yield from _between(node.left, node.comparators[0], COMPARED, lines)


def _arithmetic(node: ast.BinOp, lines: list[str]) -> Iterator[Edit]:
    yield from _between(node.left, node.right, COMPUTED, lines)


def _logic(node: ast.BoolOp, lines: list[str]) -> Iterator[Edit]:
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield from _between(left, right, JOINED, lines)


def _negation(node: ast.UnaryOp, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node.op, ast.Not):
        yield Edit(node.lineno, node.col_offset, node.operand.col_offset, "")


def _constant(node: ast.Constant, lines: list[str]) -> Iterator[Edit]:
    assert node.end_col_offset is not None
    if isinstance(node.value, bool):
        yield Edit(node.lineno, node.col_offset, node.end_col_offset, str(not node.value))
    elif isinstance(node.value, int) and node.value <= LARGEST_CONSTANT:
        yield Edit(node.lineno, node.col_offset, node.end_col_offset, str(node.value + 1))


def _call(node: ast.Call, lines: list[str]) -> Iterator[Edit]:
    name = node.func
    if isinstance(name, ast.Name) and name.id in SWAPPED_CALLS and len(node.args) == 1:
        assert name.end_col_offset is not None
        yield Edit(name.lineno, name.col_offset, name.end_col_offset, SWAPPED_CALLS[name.id])


def _condition(node: ast.If | ast.IfExp, lines: list[str]) -> Iterator[Edit]:
    if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield Edit(node.test.lineno, node.test.col_offset, node.test.col_offset, "not ")


def _increment(node: ast.AugAssign, lines: list[str]) -> Iterator[Edit]:
    yield from _between(node.target, node.value, {"+=": "-=", "-=": "+="}, lines)


EDITS: dict[type, Callable[..., Iterator[Edit]]] = {
    ast.Compare: _comparison,
    ast.BinOp: _arithmetic,
    ast.BoolOp: _logic,
    ast.UnaryOp: _negation,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.IfExp: _condition,
    ast.AugAssign: _increment,
}
