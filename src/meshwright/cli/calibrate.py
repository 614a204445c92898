"""``meshwright calibrate``: fit a cluster's constants, or levels of serving, to the user's runs."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def calibrate(
    runs: Annotated[
        str,
        typer.Argument(
            metavar="RUNS.csv", help="Three or more measured runs on one cluster, or any that serve."
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CLUSTER", help="A cluster file to start from, such as a measured one."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the fitted cluster file, or the file of levels."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fit a cluster or levels of serving to measured runs. Exits with 1 if calibration does not reduce the error."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.calibrate(runs, on=on, output=output), as_json)
