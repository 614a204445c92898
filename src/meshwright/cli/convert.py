"""``meshwright convert``: write the checkpoint of a run in another form."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_json


def convert(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The folder of a checkpoint.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Add the adapters to their base, and write its weights.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write Hugging Face weights here."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write the checkpoint of a run in another form: its adapters merged into their base."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        data = api.convert(checkpoint, merge=merge, output=output).to_json()
        if as_json:
            print_json(data)
        else:
            from meshwright.present.runs.converted_checkpoint import render_converted

            render_converted(data)
