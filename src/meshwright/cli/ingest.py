"""``meshwright ingest``: read training logs as rows of a table of runs."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import check_writable, errors_as_messages, print_json, write_whole


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
        from meshwright import api

        if output:
            check_writable(output, "output")
        found = api.ingest(logs, plan=plan, settings=set_ or ())
        existing = output.read_text(encoding="utf-8") if output and output.exists() else ""
        table = found.table(existing)
        if output:
            write_whole(output, table)
        if as_json:
            print_json(found.to_json())
        else:
            from meshwright.present.runs.ingested_logs import render_ingest

            render_ingest(found.to_json(), table, str(output) if output else None)
