"""Help that names what a table of strategies holds: ``{targets}`` becomes its names, in its order.

The tables import what they list, so they are read when help is shown and not when the command line starts.
"""

from collections.abc import Callable, Iterable
from typing import Any

from typer.core import TyperCommand


def _targets() -> Iterable[str]:
    from meshwright.export import TARGETS

    return TARGETS


def _launchers() -> Iterable[str]:
    from meshwright.export.launchers import LAUNCHERS

    return LAUNCHERS


def _formats() -> Iterable[str]:
    from meshwright.import_.formats import FORMATS

    return FORMATS


REGISTRIES: dict[str, Callable[[], Iterable[str]]] = {
    "{targets}": _targets,
    "{launchers}": _launchers,
    "{formats}": _formats,
}


def filled(text: str) -> str:
    """A help text with the names of the tables that it mentions: ``a, b or c``."""
    for mark, registry in REGISTRIES.items():
        if mark in text:
            *names, last = registry()
            text = text.replace(mark, f"{', '.join(names)} or {last}")
    return text


class NamingCommand(TyperCommand):
    """A verb whose options name what tables hold."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the names filled in."""
        for parameter in self.params:
            parameter.help = filled(parameter.help or "")  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
