"""``meshwright export``: write a plan as another framework's files."""

from pathlib import Path
from typing import Annotated, Any

import typer

from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.options.strategy_names_help import NamingCommand
from meshwright.cli.terminal.output import errors_as_messages, print_json, write_tree


class Export(NamingCommand):
    """The command, with ``--check`` alone as short for ``--check=parser``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Expand the short form."""
        return super().parse_args(ctx, ["--check=parser" if word == "--check" else word for word in args])


def export(
    plan: PlanFile,
    to: Annotated[
        str,
        typer.Option("--to", metavar="TARGET", help="{targets}."),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Directory to write into.")] = None,
    launcher: Annotated[
        str, typer.Option("--launcher", help="{launchers} starts it on all nodes.")
    ] = "sbatch",
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="[=dry]",
            help="Hand the files to the target's own parser (--check), or have it take a step of the plan without "
            "devices and hold that against the plan (--check=dry); exits with 1 if it says no.",
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", help="The Python that has the target, for --check.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write the files that a framework needs to run the plan."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        data = api.export(plan, to=to, launcher=launcher, check=check, python=python)
        if output:
            write_tree(output, data["files"])
        if as_json:
            print_json(data)
        else:
            from meshwright.present.exported_files import render_export

            render_export(data, str(output) if output else None)
        if "check" in data and not data["check"]["accepted"]:
            raise typer.Exit(1)
