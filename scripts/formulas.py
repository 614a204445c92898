"""Formulas and conditions as the documentation prints them, and what they come to.

One text is both what a page shows and what a test compares with played schedules, so that the two cannot differ:
``(P − 1)·(F + I + W)/V``, ``2·min(M, P − r)``, ``⌊7·P/2⌋ − 3``, ``F = I ≥ W and M mod U = 0``. Numbers are exact.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, floor
from typing import Any

SIGNS = {"−": "-", "·": "*", "≤": "<=", "≥": ">=", "=": "==", "⌊": "floor(", "⌋": ")", "⌈": "ceil(", "⌉": ")"}
OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {"min": min, "max": max, "floor": floor, "ceil": ceil}
Names = Mapping[str, Fraction]


def number(formula: str, names: Names) -> Fraction:
    """What a formula comes to. Raises KeyError for a name or a sign that is not known."""
    return Fraction(_value(_parsed(formula), names))


def holds(condition: str, names: Names) -> bool:
    """Whether a condition holds; an empty one does."""
    return not condition or bool(_value(_parsed(condition), names))


def letters(formula: str) -> set[str]:
    """The letters that a formula speaks of."""
    return {node.id for node in ast.walk(_parsed(formula)) if isinstance(node, ast.Name)} - set(FUNCTIONS)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text.translate(str.maketrans(SIGNS)).replace(" mod ", " % "), mode="eval").body


def _value(node: ast.expr, names: Names) -> Any:
    match node:
        case ast.Constant(value=int(value)):
            return Fraction(value)
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=sign, right=right):
            return OPERATORS[type(sign)](_value(left, names), _value(right, names))
        case ast.Compare(left=left, ops=signs, comparators=others):
            values = [_value(part, names) for part in (left, *others)]
            pairs = zip(signs, values, values[1:], strict=False)
            return all(OPERATORS[type(sign)](a, b) for sign, a, b in pairs)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, names) for part in parts)
        case ast.Call(func=ast.Name(id=name), args=parts):
            return FUNCTIONS[name](*(_value(part, names) for part in parts))
    raise KeyError(ast.unparse(node))
