"""Read options of ``run`` that stand behind ``--`` of another command, with the parser of ``run`` itself."""

from collections.abc import Sequence

import typer

from meshwright.cli.run import run
from meshwright.cli.terminal.usage_errors import USAGE_ERROR, usage_problem
from meshwright.errors import InputError

NAME = "run"


def run_words(words: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return each option with its value, None for a flag. Raise InputError as ``run`` would."""
    app = typer.Typer(add_completion=False)
    app.command(NAME)(run)
    command = typer.main.get_command(app)
    try:
        context = command.make_context(NAME, ["PLAN", *words])
    except USAGE_ERROR as error:
        raise InputError(usage_problem(error, words, NAME, command)) from None
    found: list[tuple[str, str | None]] = []
    for parameter in command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name == "plan" or value is None or value is False or value == []:
            continue
        option = max(parameter.opts, key=len)
        for one in value if isinstance(value, list | tuple) else [value]:
            found.append((option, None if one is True else str(one)))
    return found
