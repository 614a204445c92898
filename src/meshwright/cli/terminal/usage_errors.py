"""Report wrong usage of the command line: as text with an example, or as JSON if ``--json`` is among the arguments.

An unknown option or verb, a missing argument or a value of another type is found before a verb runs. With ``--json``
the answer has the form of every other wrong input, in the words of the text.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import typer
from typer.core import TyperGroup

from meshwright.cli.terminal.output import WRONG_INPUT, print_json, wrong_input
from meshwright.errors import Problem, nearest

JSON = "--json"
EXAMPLES = {
    "--on": "'h100-sxm-80gb x 64'",
    "--seq-len": "8192",
    "--global-batch": "512",
    "--to": "megatron",
}
"""A value of every option that a verb requires."""
OF_VERBS = {"launch": {"--on": "slurm"}}
"""Values where an option means something else to a verb."""
ONE_OF = {"--global-batch": "--batch-range"}
"""Options that a verb requires unless another one is given."""
USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]
"""Base class of all usage errors; typer has no public name for it."""


class Verbs(TyperGroup):
    """The verbs of the command line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments before the verb."""
        words = tuple(args)
        with self._in_json(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[JSON] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Parse the arguments of the verb, and run it."""
        with self._in_json(ctx.meta[JSON]):
            return super().invoke(ctx)

    @contextmanager
    def _in_json(self, words: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except USAGE_ERROR as error:
            if JSON not in words:
                self._add_example(error, words)
                raise
            print_json(wrong_input([_problem(error, words, self)]))
            raise typer.Exit(WRONG_INPUT) from None

    def _add_example(self, error: Any, words: Sequence[str]) -> None:
        """Complete the message of a missing argument or option by an example of all options that are missing."""
        name = next((word for word in words if not word.startswith("-")), "")
        verb = self.commands.get(name)
        parameter: Any = getattr(error, "param", None)
        if verb is None or error.message or not getattr(parameter, "required", False):
            return
        given = {word.partition("=")[0] for word in words}
        every = {max(known.opts, key=len): known.required for known in verb.params}
        needed = [name for name in every if every[name] or ONE_OF.get(name) in every.keys() - given]
        missing = [option for option in needed if option in EXAMPLES and option not in given]
        examples = EXAMPLES | OF_VERBS.get(name, {})
        parts = [f"{option} {examples[option]}" for option in missing]
        if not parameter.opts[0].startswith("-"):
            parts.insert(0, _line(name, verb))
        error.message = f"Example: {' '.join(parts)}"


def _problem(error: Any, words: Sequence[str], verbs: Verbs) -> Problem:
    """Return the problem of a usage error: its option, argument or verb, the given value, and a suggestion."""
    name = next((word for word in words if not word.startswith("-")), "")
    verb = verbs.commands.get(name, verbs)
    found = usage_problem(error, words, name, verb)
    if verb is verbs and found.field == "command":
        return Problem("command", name, found.rule, nearest(name, verbs.commands))
    return found


def usage_problem(error: Any, words: Sequence[str], name: str, verb: Any) -> Problem:
    """Return the problem of a usage error of one verb, whose arguments are ``words``."""
    rule = error.format_message().rstrip(".")
    options = {spelling: known for known in verb.params for spelling in known.opts if spelling[0] == "-"}
    option: str | None = getattr(error, "option_name", None)
    parameter: Any = getattr(error, "param", None) or options.get(option or "")
    if parameter is not None and not parameter.opts[0].startswith("-"):
        return Problem(_value(parameter), None, rule, _line(name, verb))
    if parameter is not None:
        longest = max(parameter.opts, key=len)
        usual = "8" if re.search("valid (integer|number)", rule) else _value(parameter)
        example = (EXAMPLES | OF_VERBS.get(name, {})).get(longest, usual)
        return Problem(longest, _given(words, parameter.opts), rule, f"{longest} {example}")
    if option is not None:
        return Problem(option, _given(words, [option]), rule, nearest(option, options))
    return Problem("command", " ".join(words), rule, _line(name, verb))


def _value(parameter: Any) -> str:
    """Return the help's name for the value of an option or argument."""
    return str(parameter.metavar or parameter.name.strip("_").upper())


def _line(name: str, verb: Any) -> str:
    """Return a verb with its arguments."""
    arguments = [_value(known) for known in verb.params if not known.opts[0].startswith("-")]
    return " ".join(["meshwright", name, *arguments])


def _given(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of an option, the last time it is named."""
    values = [after for word, after in pairwise(words) if word in names]
    values += [word.partition("=")[2] for word in words if word.partition("=")[0] in names and "=" in word]
    return values[-1] if values else None
