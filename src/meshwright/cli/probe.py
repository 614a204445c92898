"""``meshwright probe``: write short jobs whose logs calibrate a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_json, write_tree


def probe(
    plan: PlanFile,
    top: Annotated[int, typer.Option("--top", help="Number of jobs; the first runs the plan itself.")] = 3,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TARGET", help="The framework, in place of the stack's own.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory to write into.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write 20-step jobs of a plan and of plans near it, whose logs calibrate the cluster."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        data = api.probe(plan, top=top, to=to).to_json()
        if output:
            write_tree(output, data["files"])
        if as_json:
            print_json(data)
        else:
            from meshwright.present.runs.probe_jobs import render_probes

            render_probes(data, str(output) if output else None)
