"""``meshwright explain``: explain a plan's cost, and find changes that change the answer."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Calibration, Constants, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_json, print_remarks
from meshwright.cli.terminal.progress import ProgressLine


def explain(
    plan: PlanFile,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="OTHER",
            help="Explain the difference from another plan file, or from: recommended.",
        ),
    ] = None,
    each: Annotated[
        str | None,
        typer.Option(
            "--each",
            metavar="CHOICE",
            help="Compare all values of one choice: context, recompute, schedule, tp, micro_batch.",
        ),
    ] = None,
    constants: Constants = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Explain where time and memory go, each choice's effect, the bottleneck, and what changes the answer.

    Exits with 1 when the plan does not fit.
    """
    with errors_as_messages(as_json, debug):
        from meshwright import api

        found = api.explain(
            plan,
            against=against,
            each=each,
            constants=constants,
            calibration=calibration,
            progress=ProgressLine(),
        )
        data = found.to_json()
        if as_json:
            print_json(data)
        else:
            from meshwright.present.plan_answers.serving_tables import render_any_explanation

            print_remarks(data["predict"]["remarks"])
            render_any_explanation(data, plan, against)
        if not found.fits:
            raise typer.Exit(1)
