"""Wrong usage of the command line as JSON, where ``--json`` is among the words.

An unknown option or verb, a missing argument or a value of another type is found before a verb runs. Without ``--json``
the answer is the usual text; with it the same form as every other wrong input has. The words are those of the text.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperGroup

from meshwright.cli.output import WRONG_INPUT, print_json, wrong_input
from meshwright.errors import Problem, nearest

JSON = "--json"
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""What every wrong usage is a kind of; typer has no public name for it."""


class Verbs(TyperGroup):
    """The verbs of the command line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words before the verb."""
        words = tuple(args)
        with self._in_json(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[JSON] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Read the words of the verb, and run it."""
        with self._in_json(ctx.meta[JSON]):
            return super().invoke(ctx)

    @contextmanager
    def _in_json(self, words: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except USAGE_ERROR as error:
            if JSON not in words:
                raise
            print_json(wrong_input([_problem(error, words, self)]))
            raise typer.Exit(WRONG_INPUT) from None


def _problem(error: Any, words: Sequence[str], verbs: Verbs) -> Problem:
    """The problem of a usage error: its option, argument or verb, what was given, and what would do."""
    rule = error.format_message().rstrip(".")
    name = next((word for word in words if not word.startswith("-")), "")
    verb = verbs.commands.get(name, verbs)
    options = {spelling: known for known in verb.params for spelling in known.opts if spelling[0] == "-"}
    option: str | None = getattr(error, "option_name", None)
    parameter: Any = getattr(error, "param", None) or options.get(option or "")
    if parameter is not None and not parameter.opts[0].startswith("-"):
        return Problem(_value(parameter), None, rule, _line(name, verb))
    if parameter is not None:
        longest = max(parameter.opts, key=len)
        example = "8" if re.search("valid (integer|number)", rule) else _value(parameter)
        return Problem(longest, _given(words, parameter.opts), rule, f"{longest} {example}")
    if option is not None:
        return Problem(option, _given(words, [option]), rule, nearest(option, options))
    if verb is verbs:
        return Problem("command", name, rule, nearest(name, verbs.commands))
    return Problem("command", " ".join(words), rule, _line(name, verb))


def _value(parameter: Any) -> str:
    """What help calls the value of an option or argument."""
    return str(parameter.metavar or parameter.name.strip("_").upper())


def _line(name: str, verb: Any) -> str:
    """A verb with its arguments."""
    arguments = [_value(known) for known in verb.params if not known.opts[0].startswith("-")]
    return " ".join(["meshwright", name, *arguments])


def _given(words: Sequence[str], names: Sequence[str]) -> str | None:
    """What stands behind an option, the last time it is named."""
    values = [after for word, after in pairwise(words) if word in names]
    values += [word.partition("=")[2] for word in words if word.partition("=")[0] in names and "=" in word]
    return values[-1] if values else None
