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
from meshwright.cli.terminal.output import check_writable, errors_as_messages, print_json, write_all
from meshwright.errors import InputError, Problem


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
        from meshwright import api
        from meshwright.verbs.import_ import ImportRequest

        request = ImportRequest(
            model=model,
            on=on,
            seq_len=seq_len,
            global_batch=global_batch,
            stack=stack,
            source=source,
            variables=tuple(variable or ()),
        )
        stem = output.stem if output else "plan"
        if output:
            check_writable(output, "output")
            if output.exists() and output.samefile(file):
                rule = "is the file that is read: it would be lost"
                raise InputError(Problem("output", str(output), rule, "another name"))
        data = api.import_file(file, request).to_json(stem)
        if output:
            more_files = {output.with_name(name): text for name, text in data["beside"].items()}
            write_all({output: data["plan_text"], **more_files})
        if as_json:
            print_json(data)
            return
        from meshwright.present.imported_plan import render_import

        render_import(data, str(output) if output else None)
