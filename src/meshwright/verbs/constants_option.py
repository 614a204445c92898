"""Load a plan with constants of the cost model that the user gave (``--constants FILE``)."""

from collections.abc import Callable
from dataclasses import replace

from meshwright.cost.constants_file import Given, read_constants
from meshwright.errors import InputError, Problem, attempted
from meshwright.plans.resolve import Resolved


def with_given_constants(load: Callable[[], Resolved], constants: Given | None) -> Resolved:
    """Return the plan that ``load`` reads, with the constants in its setting. Raise InputError with every problem."""
    if constants is None:
        return load()
    problems: list[Problem] = []
    given = attempted(lambda: read_constants(constants), problems)
    resolved = attempted(load, problems)
    if given is not None and resolved is not None:
        problems += given.unknown_stacks([resolved.setting.stack.name])
    if problems or given is None or resolved is None:
        raise InputError(problems)
    return replace(resolved, setting=given.on(resolved.setting))
