"""Arguments and options of ``schedule``, one type for each."""

from pathlib import Path
from typing import Annotated

import typer

Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...",
        help="A schedule or a CSV file of lists; `compare` and several of them; `list`; or `auto` to search for lists.",
    ),
]
Stages = Annotated[int | None, typer.Option("--stages", "--ranks", metavar="P", help="Pipeline ranks.")]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", metavar="M", help="Micro-batches of a step.")
]
Chunks = Annotated[
    int | None,
    typer.Option(
        "--chunks", "--virtual-stages", metavar="V", help="Stages of each rank; as usual if not given."
    ),
]
Times = Annotated[
    str | None,
    typer.Option(
        "--times",
        metavar="F,I,W,COMM",
        help="Times of a micro-batch on a rank, all its chunks together, and of a message; 1,1,1,0 if not given.",
    ),
]
StageTimes = Annotated[
    str | None,
    typer.Option(
        "--stage-times", metavar="FILE", help="F, I and W of every stage: CSV or YAML, instead of --times."
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="PLAN",
        help="For `auto`: size, stage times and memory of a plan file, instead of the options for them.",
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="X",
        help="The most that a rank may hold; F of a micro-batch on a whole rank takes 2. To compare, several: 4,8,16.",
    ),
]
Graph = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="FILE",
        help="For `auto`: operators with branches (YAML or JSON), instead of a chain.",
    ),
]
Memory = Annotated[
    float | None,
    typer.Option("--memory", metavar="GIB", help="With --graph, the most GiB that a rank may hold."),
]
Unit = Annotated[
    int | None,
    typer.Option("--unit", metavar="U", help="Micro-batches that go together, for schedules with units."),
]
Placement = Annotated[
    str | None,
    typer.Option(
        "--placement", metavar="v|loop", help="Order of a rank's stages for `auto`; v if not given."
    ),
]
TimeBudget = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        metavar="S",
        help="Seconds that `auto` searches, 60 if not given; it ends at once when nothing can be shorter.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="auto|exact|local",
        help="Solver of `auto`: constraint programming, local search, or chosen by the problem's size.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed of `auto`; 0 if not given."),
]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write the lists, one row for each rank.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Draw the timeline to this SVG file.")]
