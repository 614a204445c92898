"""``meshwright models``, ``devices`` and ``stacks``: list the entries of the catalogue."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_answer

Search = Annotated[
    str | None, typer.Argument(metavar="[SEARCH]", help="Part of a name; all are listed without it.")
]


def models(search: Search = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List the models that can be named, with sizes."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.models(search), as_json)


def devices(search: Search = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List the devices that can be named, with memory, speed and price."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.devices(search), as_json)


def stacks(search: Search = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """List the stacks of software that can be named, with the targets of their exports."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.stacks(search), as_json)
