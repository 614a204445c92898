"""``meshwright compare``: compare two plans line by line."""

from typing import Annotated

import typer

from meshwright.cli.options.objective_options import Assume, PriceTerm, Tokens
from meshwright.cli.options.shared_options import AsJson, Calibration, Constants, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A plan file.")],
    b: Annotated[
        str,
        typer.Argument(
            metavar="B", help="Another plan file, or a Kineto trace (.json, .json.gz) of a rank that ran A."
        ),
    ],
    tokens: Tokens = None,
    assume: Assume = None,
    price: PriceTerm = "on-demand",
    constants: Constants = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare two plans, or a plan's prediction with a trace."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        answer = python_api.compare(
            a,
            b,
            tokens=tokens,
            assume=assume or (),
            price=price,
            constants=constants,
            calibration=calibration,
        )
        print_answer(answer, as_json)
