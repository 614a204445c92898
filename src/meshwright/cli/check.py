"""``meshwright check``: list the problems of a plan or another framework's file."""

import typer

from meshwright.cli.options.framework_file_options import (
    GlobalBatch,
    Model,
    On,
    PlanOrFile,
    SeqLen,
    Source,
    StackName,
    Variables,
)
from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import errors_as_messages, print_json


def check(
    file: PlanOrFile,
    model: Model = None,
    on: On = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    stack: StackName = None,
    source: Source = None,
    variable: Variables = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what is illegal or does not fit, the distance from the best plan, and the smallest fix.

    Exits with 1 where there is an error or it does not fit.
    """
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
        found = api.check(file, request)
        if as_json:
            print_json(found.to_json())
        else:
            from meshwright.present.plan_answers.check_result import render_check

            render_check(found.to_json())
        if not found.ok:
            raise typer.Exit(1)
