"""Load a plan with everything that it names, changed by settings and by constants that the user gave."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshwright.cost.constants_file import Given, read_constants
from meshwright.errors import InputError, Problem, UnsupportedError, attempted
from meshwright.plans.files.plan_file import is_serving, load_plan, parse_any_plan, parse_plan
from meshwright.plans.files.yaml_text import read_file
from meshwright.plans.resolve import Resolved, resolve, with_files_read, with_nouns_from
from meshwright.plans.resolve_overrides import resolve_overrides
from meshwright.plans.serving.resolve_serving import ResolvedServing, resolve_serving
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.plans.serving.serving_settings import with_settings

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


@contextmanager
def problems_of(option: str) -> Iterator[None]:
    """Problems of a second file name the option that it was given with."""
    try:
        yield
    except InputError as error:
        raise type(error)(replace(p, field=f"{option}.{p.field}") for p in error.problems) from None


@dataclass(frozen=True, slots=True)
class LoadedServing:
    """A serving plan as its file has it, and with everything that it names."""

    file: ServingFile
    resolved: ResolvedServing


def load_serving(
    path: PlanSource, settings: Iterable[str] = (), constants: Given | None = None
) -> LoadedServing | None:
    """Load a plan that serves with everything that it names; None for a plan of another kind, or one not readable.

    Raises InputError with all problems of a serving plan; ``constants`` are refused by name.
    """
    text = json.dumps(path) if isinstance(path, Mapping) else _text(path)
    if not is_serving(text):
        return None
    read = parse_any_plan(text, "plan" if isinstance(path, Mapping) else str(path))
    assert isinstance(read, ServingFile)
    if not isinstance(path, Mapping):
        read = with_nouns_from(read, Path(path).parent)
    refuse_training_options({"constants": constants})
    chosen = tuple(settings)
    file = with_settings(read, chosen) if chosen else read
    return LoadedServing(file, resolve_serving(file))


def _text(path: str | Path) -> str:
    """Return the text of a file; none if it cannot be read, which is reported with all that is wrong elsewhere."""
    try:
        return read_file(path, "plan", "check the path")
    except InputError:
        return ""


def refuse_training_options(options: Mapping[str, object]) -> None:
    """Raise UnsupportedError for options that are given and that only plans that train have."""
    _refuse(options, "is an option for plans that train, and this one serves")


def refuse_serving_options(options: Mapping[str, object]) -> None:
    """Raise UnsupportedError for options that are given and that only plans that serve have."""
    _refuse(options, "is an option for plans that serve, and this one trains")


def _refuse(options: Mapping[str, object], rule: str) -> None:
    refused = [
        Problem(name, str(value), rule, f"leave {name} out")
        for name, value in options.items()
        if value not in (None, (), [], "")
    ]
    if refused:
        raise UnsupportedError(refused)


def plan_name(plan: PlanSource, number: int = 0) -> str:
    """Return the name of a plan in a report: its file, or a number for a plan without one."""
    if isinstance(plan, Mapping):
        return f"plan {number + 1}"
    return str(plan)
