"""JSON text to plain data: one object, as the standard has it.

Refused with the place: comments, trailing commas and text behind the object (hjson, which DeepSpeed itself reads too,
but neither transformers nor anything else), a key twice, numbers that are not finite or endless, endless nesting.
"""

import json
from math import isfinite
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.plans.files.yaml_text import MAX_BYTES, MAX_DEPTH, MAX_DIGITS

HINT = "write plain JSON: no comments, no comma before a closing bracket"


def read_json(text: str, where: str) -> dict[str, Any]:
    """Parse the JSON object in ``text``; ``where`` names the text in problems. Raises InputError."""
    if len(text) > MAX_BYTES:
        raise InputError(Problem(where, f"{len(text)} characters", f"more than {MAX_BYTES}", "shorten it"))
    try:
        data = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_unique,
            parse_constant=_refused_number,
            parse_float=_finite,
            parse_int=_whole,
        )
    except json.JSONDecodeError as error:
        raise InputError(_unreadable(error, text, where)) from None
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(Problem(where, text[:80], reason, HINT)) from None
    if not isinstance(data, dict):
        raise InputError(Problem(where, data, "must be an object", "start with {"))
    if _depth(data) > MAX_DEPTH:
        raise InputError(Problem(where, text[:80], f"is nested deeper than {MAX_DEPTH}", HINT))
    return data


def _unreadable(error: json.JSONDecodeError, text: str, where: str) -> Problem:
    lines = text.splitlines()
    value = lines[error.lineno - 1] if error.lineno <= len(lines) else ""
    place = f"line {error.lineno}, column {error.colno}"
    return Problem(where, value[:80], f"cannot be read as JSON: {error.msg} ({place})", HINT)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"has keys twice: {', '.join(twice)[:200]}")
    return data


def _refused_number(text: str) -> float:
    raise ValueError(f"has a number that is not finite: {text}")


def _finite(text: str) -> float:
    return float(text) if isfinite(float(text)) else _refused_number(text[:40])


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"has a number of more than {MAX_DIGITS} digits")
    return int(text)


def _depth(data: object) -> int:
    """Levels of objects and lists."""
    depth, level = 0, [data]
    while level := [item for value in level for item in _items(value)]:
        depth += 1
    return depth


def _items(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
