"""``meshwright describe``: describe a model, cluster, stack, plan or checkpoint."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug, OfCheckpoint
from meshwright.cli.options.workload_options import size_option
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def describe(
    name: Annotated[
        str, typer.Argument(metavar="MODEL|CLUSTER|STACK|PLAN|CHECKPOINT", help="A name, file or folder.")
    ],
    long: Annotated[bool, typer.Option("--long", help="A plan in its long form.")] = False,
    seq_len: Annotated[int, size_option("--seq-len", "Tokens per sequence for FLOPs.")] = 4096,
    plan: OfCheckpoint = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a model, cluster, stack or plan with every default, or what a checkpoint holds."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.describe(name, long=long, seq_len=seq_len, plan=plan or ()), as_json)
