"""``meshwright verify``: prove that a plan computes what one device computes."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_json
from meshwright.cli.terminal.progress import ProgressLine


def verify(
    plan: PlanFile,
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", help="Local ranks of a small plan, at most 16.")
    ] = 8,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="PLAN", help="Compare models with those of data-parallel, or of a plan."
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Prove on local processes that a plan computes what one device computes. Exits with 1 if not."""
    with errors_as_messages(as_json, debug):
        from meshwright import api
        from meshwright.cli.terminal.launcher_ranks import is_first

        if not is_first():  # verify starts its own ranks
            return
        data = api.verify(plan, ranks=ranks, against=against, progress=ProgressLine()).to_json()
        if as_json:
            print_json(data)
        else:
            from meshwright.present.runs.verification import render_compared, render_verified

            (render_verified if against is None else render_compared)(data)
        if not data["equal"]:
            raise typer.Exit(1)
