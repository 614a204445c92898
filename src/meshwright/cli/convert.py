"""``meshwright convert``: write a checkpoint in another form."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_json


def convert(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="A checkpoint: ours, DCP or Megatron.")
    ],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Add the adapters to their base, and write its Hugging Face weights."),
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FORMAT", help="Write this format: dcp, megatron or meshwright."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FOLDER", help="Write here.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The model of a checkpoint that does not tell it."),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", metavar="NAME", help="Precision of runs that go on: bf16, fp32 or fp64."),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run what is pickled in the checkpoint, where it asks for unknown classes."
        ),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Write a checkpoint in another format, or its adapters merged into their base."""
    with errors_as_messages(as_json, debug):
        from meshwright import api
        from meshwright.verbs.convert import ConvertRequest

        request = ConvertRequest(
            merge=merge, to=to, output=output, model=model, precision=precision, trust=trust
        )
        data = api.convert(checkpoint, request).to_json()
        if as_json:
            print_json(data)
        else:
            from meshwright.present.runs.converted_checkpoint import render_converted

            render_converted(data)
