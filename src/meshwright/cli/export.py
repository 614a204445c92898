"""``meshwright export``: a plan in another framework's words."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import AsJson, Debug, PlanFile
from meshwright.cli.output import errors_as_messages, print_json, write_tree


def export(
    plan: PlanFile,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="megatron or torchtitan.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory to write into.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write the files with which a framework runs the plan."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        data = api.export(plan, to=to)
        if output:
            write_tree(output, data["files"])
        if as_json:
            print_json(data)
            return
        from meshwright.report.exported import render_export

        render_export(data, str(output) if output else None)
