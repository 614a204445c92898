"""``meshwright report``: write a page about a plan that opens offline."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.objective_options import Assume, PriceTerm, Tokens
from meshwright.cli.options.shared_options import AsJson, Constants, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_answer
from meshwright.cli.terminal.progress import ProgressLine


def report(
    plan: PlanFile,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="OTHER",
            help="Compare with another plan file, or with: recommended. Repeatable.",
        ),
    ] = None,
    tokens: Tokens = None,
    assume: Assume = None,
    price: PriceTerm = "on-demand",
    constants: Constants = None,
    no_search: Annotated[
        bool,
        typer.Option("--no-search", help="Leave out neighbours, trade-offs and the proof of the search."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page; by default the plan's name with .html."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write one page about a plan: answer, cost, layout, timeline, memory, reasons and trade-offs.

    The page opens offline in a browser. Exits with 1 when the plan does not fit.
    """
    given = dict(locals()) | {"against": against or ()}
    with errors_as_messages(as_json, debug):
        from meshwright.cli.terminal.report_answer import reported

        print_answer(reported(given, ProgressLine()), as_json)
