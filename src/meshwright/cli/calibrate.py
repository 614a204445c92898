"""``meshwright calibrate``: fit a cluster's constants to the user's runs."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import check_writable, errors_as_messages, print_json, write_whole


def calibrate(
    runs: Annotated[
        str, typer.Argument(metavar="RUNS.csv", help="Three or more measured runs on one cluster.")
    ],
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CLUSTER", help="A cluster file to start from, such as a measured one."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write a cluster file with the fitted constants.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Fit a cluster's constants to measured runs. Exits with 1 if calibration does not reduce the error."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        if output:
            check_writable(output, "output")
        found = api.calibrate(runs, on=on)
        if output and found.helps:
            write_whole(output, api.cluster_file(found))
        if as_json:
            print_json(found.to_json())
        else:
            from meshwright.present.runs.calibration import render_calibration

            render_calibration(found.to_json(), str(output) if output and found.helps else None)
        if not found.helps:
            raise typer.Exit(1)
