"""Options of ``plan`` and ``predict`` for clusters, objectives, limits and the cost of a whole training."""

from pathlib import Path
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
Batches = Annotated[
    str | None,
    typer.Option(
        "--batch-range",
        metavar="LOW..HIGH",
        help="Choose the global batch from these whole numbers; every objective is per token.",
    ),
]
Aim = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="Goal for clusters: throughput (default), cost, energy, goodput or time; of serving: throughput, cost or "
        "latency.",
    ),
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
    typer.Option(
        "--assume",
        metavar="NAME=VALUE",
        help="An assumption: spare_nodes=2, or of one device family: b200:usd_per_device_hour=2. Repeatable.",
    ),
]
Power = Annotated[
    float | None,
    typer.Option("--power", metavar="KW", help="Power that all nodes and the site around them may draw."),
]
Sure = Annotated[
    float | None,
    typer.Option(
        "--sure",
        metavar="P",
        help="Probability with which all limits must hold; without it predicted values must.",
    ),
]
PriceTerm = Annotated[
    str,
    typer.Option(
        "--price", metavar="TERM", help="Term of prices: on-demand, capacity-block, spot or lowest."
    ),
]
ClusterCsv = Annotated[
    Path | None, typer.Option("--csv", help="Write a row with all figures for each cluster and count.")
]
ClusterMarkdown = Annotated[
    Path | None, typer.Option("--markdown", help="Write the same rows as a Markdown table.")
]
