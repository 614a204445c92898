"""``meshwright predict``: predict time, memory, money and energy of a plan."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.objective_options import Assume, Tokens
from meshwright.cli.options.shared_options import AsJson, Debug, PlanFile
from meshwright.cli.terminal.output import (
    check_writable,
    errors_as_messages,
    print_json,
    print_remarks,
    write_whole,
)


def predict(
    plan: PlanFile,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change the plan: tp=4. Repeatable."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the simulated step as a Perfetto trace (JSON).")
    ] = None,
    stage_times: Annotated[
        Path | None,
        typer.Option("--stage-times", help="Write times of the stages as `schedule` reads them (YAML)."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the plan's lists, one row for each pipeline rank.")
    ] = None,
    tokens: Tokens = None,
    assume: Assume = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict a plan's step time, memory and cost. Exits with 1 if it does not fit."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        for option, path in (("trace", trace), ("stage-times", stage_times), ("csv", csv)):
            if path:
                check_writable(path, option)
        report = api.predict(plan, settings=set_ or (), tokens=tokens, assume=assume or ())
        if trace:
            import json

            write_whole(trace, json.dumps(api.trace(plan, settings=set_ or ()), allow_nan=False))
        if stage_times:
            write_whole(stage_times, api.stage_times(plan, str(stage_times), settings=set_ or ()))
        if csv:
            write_whole(csv, api.lists(plan, settings=set_ or ()))
        if as_json:
            print_json(report.to_json())
        else:
            from meshwright.present.plan_answers.prediction import render_report

            print_remarks(report.remarks)
            written = (str(path) if path else None for path in (trace, stage_times))
            render_report(report.to_json(), *written)
        if not report.fits:
            raise typer.Exit(1)
