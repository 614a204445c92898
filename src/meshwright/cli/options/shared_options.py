"""Options that several verbs share, spelled once."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.", hidden=True)]
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file (YAML).")]
