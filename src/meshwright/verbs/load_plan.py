"""Load a plan with everything that it names, changed by settings and by constants that the user gave."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.cost.constants_file import Given, read_constants
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.files.plan_file import load_plan, parse_plan
from meshwright.plans.resolve import Resolved, resolve, with_files_read
from meshwright.plans.resolve_overrides import resolve_overrides

PlanSource = str | Path | Mapping[str, Any]
"""A plan file, or a plan as data."""


def load(
    path: PlanSource,
    settings: Iterable[str] = (),
    constants: Given | None = None,
    *,
    stack_binds: bool = False,
) -> Resolved:
    """Load a plan file with everything that it names; ``settings`` change it first. Raise InputError.

    A mapping is the plan itself, as JSON has it: files that it names are not read.
    ``constants`` of the cost model are those of its setting. What the plan's stack cannot do is a warning, and an error
    where the stack ``stack_binds``.
    """
    chosen = tuple(settings)

    def resolved() -> Resolved:
        if isinstance(path, Mapping):
            read = parse_plan(json.dumps(path))
        else:
            read = with_files_read(load_plan(path), Path(path).parent)
        return resolve_overrides(read, chosen) if chosen else resolve(read, stack_binds=stack_binds)

    if constants is None:
        return resolved()
    problems: list[Problem] = []
    found = attempted(resolved, problems)
    stacks = None if found is None else [found.setting.stack.name]
    given = attempted(lambda: read_constants(constants, stacks), problems)
    if problems or given is None or found is None:
        raise InputError(problems)
    return replace(found, setting=given.on(found.setting))


def plan_name(plan: PlanSource, number: int = 0) -> str:
    """Return the name of a plan in a report: its file, or a number for a plan without one."""
    if isinstance(plan, Mapping):
        return f"plan {number + 1}"
    return str(plan)
