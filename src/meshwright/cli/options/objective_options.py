"""Options of ``plan`` and ``predict`` for clusters, objectives, limits and the cost of a whole training."""

from typing import Annotated

import typer

On = Annotated[
    list[str],
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help='"DEVICE x COUNT", "DEVICE x <=MOST", a cluster file, or a price list (CSV). Repeatable.',
    ),
]
Aim = Annotated[
    str,
    typer.Option("--objective", help="Goal for clusters: throughput, cost, energy, goodput or time."),
]
Tokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="N", help="Days, money and energy of so many tokens: 300B, 15T."),
]
Budget = Annotated[
    float | None, typer.Option("--budget", metavar="USD", help="Dollars that the training may cost.")
]
Deadline = Annotated[
    float | None, typer.Option("--deadline", metavar="DAYS", help="Days that the training may take.")
]
Assume = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="NAME=VALUE", help="An assumption: spare_nodes=2. Repeatable."),
]
