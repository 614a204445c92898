"""Options that ask what a whole training comes to."""

from typing import Annotated

import typer

Tokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="N", help="Days, money and energy of so many tokens: 300B, 15T."),
]
Assume = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="NAME=VALUE", help="An assumption: spare_nodes=2. Repeatable."),
]
