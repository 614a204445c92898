"""``meshwright import``: read another framework's file as a plan."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.framework_file_options import (
    File,
    GlobalBatch,
    Model,
    On,
    SeqLen,
    Source,
    StackName,
    Variables,
)
from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def import_(
    file: File,
    model: Model = None,
    on: On = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    stack: StackName = None,
    source: Source = None,
    variable: Variables = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the plan; new stack or model files go into its folder."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read another framework's file as a plan, and say what has no counterpart."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        answer = python_api.import_file(
            file,
            model=model,
            on=on,
            seq_len=seq_len,
            global_batch=global_batch,
            stack=stack,
            from_=source,
            variable=variable or (),
            output=output,
        )
        print_answer(answer, as_json)
