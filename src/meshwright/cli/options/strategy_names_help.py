"""Fill the names of strategies into help texts: ``{targets}`` becomes the names of its table, in order.

The tables import what they list, so they are read when help is shown and not when the command line starts.
"""

from collections.abc import Callable, Iterable
from typing import Any

from typer.core import TyperCommand


def _targets() -> Iterable[str]:
    from meshwright.frameworks.export_targets import TARGET_NAMES

    return TARGET_NAMES


def _launchers() -> Iterable[str]:
    from meshwright.launchers import LAUNCHERS

    return LAUNCHERS


def _systems() -> Iterable[str]:
    from meshwright.verbs.launch.launch_targets import SYSTEMS

    return SYSTEMS


def _formats() -> Iterable[str]:
    from meshwright.frameworks.import_formats import FORMATS

    return FORMATS


REGISTRIES: dict[str, Callable[[], Iterable[str]]] = {
    "{targets}": _targets,
    "{launchers}": _launchers,
    "{systems}": _systems,
    "{formats}": _formats,
}


def filled(text: str) -> str:
    """Return a help text with the names of the tables that it mentions: ``a, b or c``."""
    for mark, registry in REGISTRIES.items():
        if mark in text:
            *names, last = registry()
            text = text.replace(mark, f"{', '.join(names)} or {last}")
    return text


class NamingCommand(TyperCommand):
    """A verb whose help names the entries of tables."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the names filled in."""
        for parameter in self.params:
            parameter.help = filled(parameter.help or "")  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)
