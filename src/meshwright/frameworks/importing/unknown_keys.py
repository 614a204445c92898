"""Keys of a configuration that its framework does not know, each with the nearest one that it does."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from meshwright.errors import Problem, Severity, nearest
from meshwright.frameworks.importing.config_values import shown
from meshwright.frameworks.nested_keys import Path, unknown_keys

MOST = 40
"""Unknown keys that are named one by one; a file with more is no file of the framework."""
Verdict = Callable[[Path], tuple[str, str, Severity]]
"""What becomes of an unknown key: rule, suggestion ('' = the nearest known name), severity."""


def unknown_problems(
    data: Mapping[str, object], names: frozenset[str], verdict: Verdict
) -> Iterator[Problem]:
    """Return a problem for each unknown key, up to a limit."""
    found = unknown_keys(data, names)
    for path, value in islice(found, MOST):
        rule, suggestion, severity = verdict(path)
        hint = suggestion or nearest(path[-1], _siblings(path, names)) or "leave it out"
        yield Problem(".".join(path)[:200], shown(value), rule, hint, severity)
    rest = sum(1 for _ in found)
    if rest:
        yield Problem("file", rest, "so many more keys are unknown", "leave them out", "warning")


def _siblings(path: Path, names: frozenset[str]) -> set[str]:
    """Names that stand where the key stands."""
    above = "".join(f"{part}." for part in path[:-1])
    inside = {name.removeprefix(above) for name in names if name.startswith(above)}
    return {name for name in inside if "." not in name and name != "*"}
