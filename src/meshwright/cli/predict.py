"""``meshwright predict``: predict time, memory, money and energy of a plan."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options import run_options as of
from meshwright.cli.options.objective_options import Assume, PriceTerm, Tokens
from meshwright.cli.options.shared_options import AsJson, Calibration, Constants, Debug, PlanFile
from meshwright.cli.terminal.output import errors_as_messages, print_answer


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
    price: PriceTerm = "on-demand",
    constants: Constants = None,
    calibration: Calibration = None,
    steps: of.Steps = None,
    lr: of.LearningRate = None,
    schedule: of.Schedule = None,
    warmup: of.Warmup = None,
    lr_floor: of.Floor = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict a plan's step time, memory and cost. Exits with 1 if it does not fit."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        answer = python_api.predict(
            plan,
            set=set_ or (),
            trace=trace,
            stage_times=stage_times,
            csv=csv,
            tokens=tokens,
            assume=assume or (),
            price=price,
            constants=constants,
            calibration=calibration,
            steps=steps,
            lr=lr,
            schedule=schedule,
            warmup=warmup,
            lr_floor=lr_floor,
        )
        print_answer(answer, as_json)
