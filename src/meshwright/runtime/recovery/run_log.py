"""Read the steps of a run back from its log of metrics, which also has those of ranks that have died."""

import json
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path
from typing import Any


def logged_steps(path: Path, first: int) -> dict[int, Mapping[str, Any]]:
    """Return the lines of steps from ``first`` on; the last line of a step counts."""
    return {int(line["step"]): line for line in _lines(path) if "loss" in line and line["step"] >= first}


def number(line: Mapping[str, Any], name: str) -> float:
    """Return a number of a line; one that is not finite stands in ``not_finite`` as text."""
    value = line.get(name)
    return float(line.get("not_finite", {}).get(name, nan)) if value is None else float(value)


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with open(path, encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            if isinstance(line.get("step"), int):
                yield line
