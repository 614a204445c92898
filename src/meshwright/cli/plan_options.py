"""The options of ``plan`` that ask for a solver."""

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.errors import InputError, Problem

if TYPE_CHECKING:
    from meshwright.verbs.solving import Solving

Solve = Annotated[
    float | None,
    typer.Option(
        "--solve",
        metavar="SECONDS",
        help="Then search for better lists for the best plans, for so long.",
    ),
]
SolveSteps = Annotated[
    int | None,
    typer.Option(
        "--solve-steps",
        metavar="N",
        help="Steps of that search for each plan, instead of all that --solve leaves time for.",
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Of what --solve draws; 0 if not given.")
]


def solving(seconds: float | None, steps: int | None, seed: int | None) -> "Solving | None":
    """What they come to. Raises InputError where there is nothing to search."""
    if seconds is not None:
        from meshwright.verbs.solving import Solving

        return Solving(seconds=seconds, steps=steps, seed=seed or 0)
    rule, hint = "is for --solve", "--solve 60, or leave it out"
    given = {"solve-steps": steps, "seed": seed}
    problems = [Problem(name, value, rule, hint) for name, value in given.items() if value is not None]
    if problems:
        raise InputError(problems)
    return None
