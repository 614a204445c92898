"""Load a plan file with everything that it names, changed by settings and by constants that the user gave."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from meshwright.cost.constants_file import Given, read_constants
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.files.plan_file import load_plan
from meshwright.plans.resolve import Resolved, resolve, with_files_read
from meshwright.plans.resolve_overrides import resolve_overrides


def load(
    path: str | Path,
    settings: Iterable[str] = (),
    constants: Given | None = None,
    *,
    stack_binds: bool = False,
) -> Resolved:
    """Load a plan file with everything that it names; ``settings`` change it first. Raise InputError.

    ``constants`` of the cost model are those of its setting. What the plan's stack cannot do is a warning, and an error
    where the stack ``stack_binds``.
    """
    chosen = tuple(settings)

    def resolved() -> Resolved:
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
