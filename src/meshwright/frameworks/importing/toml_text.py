"""TOML text to plain data: one document, within the limits of every file that is read here."""

import tomllib
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.plans.files.yaml_text import MAX_BYTES, MAX_DEPTH

HINT = "write plain TOML 1.0: a [section] and one `key = value` a line"


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Parse the TOML document in ``text``; ``where`` names the text in problems. Raises InputError."""
    if len(text) > MAX_BYTES:
        raise InputError(Problem(where, f"{len(text)} characters", f"more than {MAX_BYTES}", "shorten it"))
    try:
        data = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(Problem(where, text[:80], f"cannot be read as TOML: {reason[:200]}", HINT)) from None
    if _is_deeper(data, MAX_DEPTH):
        raise InputError(Problem(where, text[:80], f"is nested deeper than {MAX_DEPTH}", HINT))
    return data


def _is_deeper(data: object, levels: int) -> bool:
    """Return true if tables and lists lie in each other more than ``levels`` deep."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in inner)
