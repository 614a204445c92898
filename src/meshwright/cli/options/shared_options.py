"""Options that several verbs share, spelled once."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", hidden=True)]
Constants = Annotated[
    str | None,
    typer.Option(
        "--constants",
        metavar="FILE",
        help="Constants of the cost model by name (YAML or JSON): nic_efficiency, h100:gemm_efficiency.",
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Levels of serving written by calibrate, used in place of the built-in ones.",
    ),
]
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file (YAML).")]
OfCheckpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--plan", metavar="PLAN", help="A plan that may go on from the checkpoint; can be repeated."
    ),
]
