"""``meshwright launch``: write the job that runs a plan on a cluster, have its files accepted, and submit it."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def launch(
    plan: PlanFile,
    on: Annotated[str, typer.Option("--on", metavar="SYSTEM", help="{systems} starts it on all nodes.")],
    run_options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- RUN_OPTIONS]",
            help="Options of run, behind --: -- --steps 1000 --data /shared/corpus.",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage",
            metavar="PATH|BUCKET",
            help="Storage that all nodes share, for checkpoints and metrics: a path, or with skypilot a bucket's URL.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Image with meshwright[run], for kubernetes, ray and skypilot."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="URL", help="Dashboard of a Ray cluster; one on this machine if not given."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write and check the files, and start nothing.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Directory to write into; launch if not given, none with --dry-run."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Start a plan's training on a cluster, with files that its own schema or parser accepts."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        answer = python_api.launch(
            plan,
            run_options or (),
            on=on,
            storage=storage,
            image=image,
            address=address,
            dry_run=dry_run,
            output=output,
        )
        print_answer(answer, as_json)
