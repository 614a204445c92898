"""``meshwright export``: a plan in another framework's words."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import AsJson, Debug, PlanFile
from meshwright.cli.output import errors_as_messages, print_json, write_all
from meshwright.errors import InputError, Problem


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
            _write(output, data["files"])
        if as_json:
            print_json(data)
            return
        from meshwright.report.exported import render_export

        render_export(data, str(output) if output else None)


def _write(folder: Path, files: dict[str, str]) -> None:
    paths = {folder / name: text for name, text in files.items()}
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule = f"cannot be made: {error.strerror or error}"
        raise InputError(Problem("output", str(folder), rule, "another path")) from error
    write_all(paths)
