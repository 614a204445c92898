"""``meshwright describe``: describe a model, cluster, stack or plan."""

from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.options.workload_options import size_option
from meshwright.cli.terminal.output import errors_as_messages, print_answer


def describe(
    name: Annotated[str, typer.Argument(metavar="MODEL|CLUSTER|STACK|PLAN", help="A name or a file.")],
    long: Annotated[bool, typer.Option("--long", help="A plan in its long form.")] = False,
    seq_len: Annotated[int, size_option("--seq-len", "Tokens per sequence for FLOPs.")] = 4096,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a model, cluster, stack or plan with every default."""
    with errors_as_messages(as_json, debug):
        from meshwright import python_api

        print_answer(python_api.describe(name, long=long, seq_len=seq_len), as_json)
