"""``meshwright check``: list the problems of a plan, another framework's file or a checkpoint."""

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
from meshwright.cli.options.shared_options import AsJson, Constants, Debug, OfCheckpoint
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def check(
    file: PlanOrFile,
    model: Model = None,
    on: On = None,
    seq_len: SeqLen = None,
    global_batch: GlobalBatch = None,
    stack: StackName = None,
    source: Source = None,
    variable: Variables = None,
    constants: Constants = None,
    plan: OfCheckpoint = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List what is illegal or does not fit, the distance from the best plan, and the smallest fix.

    Of a checkpoint: check its digests. Exits with 1 where there is an error or it does not fit.
    """
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        answer = python_api.check(
            file,
            model=model,
            on=on,
            seq_len=seq_len,
            global_batch=global_batch,
            stack=stack,
            from_=source,
            variable=variable or (),
            constants=constants,
            plan=plan or (),
        )
        print_answer(answer, as_json)
