"""``meshwright ingest``: read training logs as rows of a table of runs."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def ingest(
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG...",
            help="Logs of Megatron, Megatron-Bridge, NeMo, torchtitan, DeepSpeed or our runtime.",
        ),
    ],
    plan: Annotated[
        str | None, typer.Option("--plan", help="The plan that ran; default: plan.yaml in the log's folder.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=VALUE", help="A value that the log lacks. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Table to put the rows into; a run of the same name is replaced."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read training logs into a table of runs for validate and calibrate."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.ingest(logs, plan=plan, set=set_ or (), output=output), as_json)
