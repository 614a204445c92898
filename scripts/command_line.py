"""The verbs and options of the command line, read from the functions that typer is given."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from meshwright.cli.main import app
from meshwright.cli.options.strategy_names_help import filled


@dataclass(frozen=True)
class Parameter:
    """An argument or option as a person writes it. ``default`` is empty where there is none to show."""

    names: tuple[str, ...]
    metavar: str
    required: bool
    default: str
    help: str
    hidden: bool

    @property
    def usage(self) -> str:
        """``-o, --output PATH``."""
        return " ".join(part for part in (", ".join(self.names), self.metavar) if part)


@dataclass(frozen=True)
class Verb:
    """A verb with its parameters, arguments first."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]


def verbs() -> list[Verb]:
    """Every verb, in the order of ``--help``."""
    return [
        Verb(command.name, inspect.getdoc(command.callback) or "", tuple(_parameters(command.callback)))
        for command in app.registered_commands
        if command.name and command.callback
    ]


def _parameters(function: Any) -> Iterator[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, *extras = get_args(hints[name])
        info = next(extra for extra in extras if isinstance(extra, ArgumentInfo | OptionInfo))
        yield _parameter(name, kind, info, parameter.default)


def _parameter(name: str, kind: Any, info: ArgumentInfo | OptionInfo, default: object) -> Parameter:
    # Inside Annotated the first name arrives in typer's parameter `default`.
    names = tuple(decl for decl in (info.default, *(info.param_decls or ())) if isinstance(decl, str))
    required = default is inspect.Parameter.empty
    flag = kind is bool
    return Parameter(
        names=names,
        metavar="" if flag else info.metavar or _type_name(kind),
        required=required,
        default="" if required or flag or default is None else str(default),
        help=filled(info.help or ""),
        hidden=info.hidden,
    )


def _type_name(kind: Any) -> str:
    """INTEGER, TEXT or PATH."""
    text = str(kind)
    return next((word for part, word in (("int", "N"), ("Path", "PATH")) if part in text), "TEXT")


def frozen_list() -> str:
    """One line for every argument and option, hidden ones too: what tests/house/cli_options.txt holds."""
    lines = [
        f"{verb.name} {parameter.usage}" + (" (required)" if parameter.required else "")
        for verb in verbs()
        for parameter in verb.parameters
    ]
    return "\n".join(lines) + "\n"
