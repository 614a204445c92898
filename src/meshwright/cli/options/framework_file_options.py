"""Common options of ``import`` and ``check``: another framework's file, and what completes it."""

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options.workload_options import size_option

if TYPE_CHECKING:
    from meshwright.verbs.import_ import ImportRequest

FRAMEWORKS = "Megatron, Megatron-Bridge, torchtitan, DeepSpeed or Accelerate"
File = Annotated[str, typer.Argument(metavar="FILE", help=f"A file of {FRAMEWORKS}.")]
PlanOrFile = Annotated[str, typer.Argument(metavar="FILE", help=f"A plan, or a file of {FRAMEWORKS}.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="Zoo name, config.json or hub id; a file that describes one may leave it out."
    ),
]
On = Annotated[
    str | None, typer.Option("--on", metavar="CLUSTER", help="A cluster file, or as 'h100-sxm-80gb x 64'.")
]
SeqLen = Annotated[int | None, size_option("--seq-len", "Tokens per sequence, in place of the file's.")]
GlobalBatch = Annotated[
    int | None, size_option("--global-batch", "Sequences per step, in place of the file's.")
]
StackName = Annotated[
    str | None, typer.Option("--stack", help="A stack's name or file, in place of the format's own.")
]
Source = Annotated[
    str | None,
    typer.Option("--from", metavar="FORMAT", help="The file's format, if it is not recognised: {formats}."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--variable", metavar="NAME=VALUE", help="A shell variable that the script reads. Repeatable."
    ),
]


def import_request(
    model: str | None,
    on: str | None,
    seq_len: int | None,
    global_batch: int | None,
    stack: str | None,
    source: str | None,
    variables: tuple[str, ...],
) -> "ImportRequest":
    """Return the options as the import reads them."""
    from meshwright.verbs.import_ import ImportRequest

    return ImportRequest(
        model=model,
        on=on,
        seq_len=seq_len,
        global_batch=global_batch,
        stack=stack,
        source=source,
        variables=variables,
    )
