"""Options of ``plan``: stack, precision, documents, encoder inputs, routing, capacity, schedules, the solver's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options.workload_options import size_option
from meshwright.errors import InputError, Problem
from meshwright.units import count_in_k

if TYPE_CHECKING:
    from meshwright.plans.forms.short import AdapterSpec, CapacitySpec, ImagesSpec, OptimizerSpec, RoutingSpec
    from meshwright.verbs.plan.solver_schedules import SolverOptions

MAX_DIGITS = 12
StackName = Annotated[
    str | None,
    typer.Option(
        "--stack",
        help="NAME or NAME@RELEASE: a framework (megatron-core), or an engine that serves (all are compared).",
    ),
]
Precision = Annotated[str, typer.Option("--precision", help="bf16, fp16, fp8, mxfp8 or nvfp4.")]
Fp8Recipe = Annotated[
    str | None,
    typer.Option("--fp8-recipe", help="Scales of fp8: current, delayed, blockwise, tensorwise or rowwise."),
]
OptimizerText = Annotated[
    str,
    typer.Option(
        "--optimizer",
        help="adamw, sgd, lion, muon, qh-adamw or zo-sgd; with options: '{name: muon, steps: 6}'.",
    ),
]
AdapterText = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        metavar="MAPPING",
        help="Adapters of task lora: '{rank: 16, base: nf4}'; also form, alpha, targets.",
    ),
]
Documents = Annotated[
    str | None,
    typer.Option(
        "--documents",
        metavar="N,…",
        help="Lengths in tokens of documents packed into sequences, one or several in turn; no attention across them.",
    ),
]
EncoderTokens = Annotated[
    int | None, size_option("--encoder-tokens", "Tokens that a text encoder reads for each sequence.")
]
ImagesText = Annotated[
    str | None,
    typer.Option(
        "--images",
        metavar="NxTOKENS",
        help="Images of each sequence, and patches of one before they are merged: 2x1024.",
    ),
]
Routing = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="balanced|S|FILE",
        help="Load of experts: balanced, Zipf's exponent, or a CSV file of counts or pairs of experts.",
    ),
]
Capacity = Annotated[
    str | None,
    typer.Option(
        "--capacity",
        metavar="F|MAPPING",
        help="Experts take F times the mean of tokens, others are dropped: 1.25, {factor: 1.25, pad: true}.",
    ),
]
Schedules = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="auto|NAME,…",
        help="Schedules to search; auto: all, with their parameters. Excludes --keep schedule=NAME.",
    ),
]
Forbid = Annotated[
    list[str] | None, typer.Option("--forbid", help="Exclude a value: tp=8, recompute=full. Repeatable.")
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Write the recommended plan to this file.")
]
ReportPage = Annotated[
    Path | None, typer.Option("--report", help="Write a page about the recommended plan to this file (HTML).")
]
Why = Annotated[
    bool, typer.Option("--why", help="Show every reason, the memory of each rank and what was not taken.")
]
Keep = Annotated[
    list[str] | None, typer.Option("--keep", help="Fix a choice: tp=8, memory_limit=0.5. Repeatable.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", help="Search too: dtypes of states, local steps, compress. Their loss is not predicted."
    ),
]
Recommends = Annotated[
    str,
    typer.Option(
        "--recommend",
        help="Order: robust (least regret) or fastest (least predicted time).",
    ),
]
Solve = Annotated[
    float | None,
    typer.Option(
        "--solve",
        metavar="SECONDS",
        help="Seconds to search better schedules for the best plans.",
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
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of that search; 0 if not given.")]


def lengths(text: str | None) -> tuple[int, ...] | None:
    """Parse the lengths of documents. Raises InputError if they are not numbers."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if all(part.isascii() and part.isdigit() and len(part) < MAX_DIGITS for part in parts):
        return tuple(map(int, parts))
    rule = "must be whole numbers with commas between"
    raise InputError(Problem("workload.documents", text, rule, "e.g. 900, or 512,512,3072"))


def _count(text: str) -> int | None:
    """Return a whole number, with k for 1024; None if it is none."""
    in_k = count_in_k(text)
    if in_k is not None:
        return in_k
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else None


def images(text: str | None) -> "ImagesSpec | None":
    """Parse the images of a sequence. Raises InputError if they are not two numbers with x between."""
    if text is None:
        return None
    from meshwright.plans.forms.short import ImagesSpec

    parts = [_count(part.strip()) for part in text.lower().replace("×", "x").split("x")]
    if len(parts) == 2 and None not in parts:
        return ImagesSpec.model_validate(dict(zip(("per_sequence", "tokens"), parts, strict=True)))
    rule = "must be images of a sequence, x, and patches of one"
    raise InputError(Problem("workload.images", text, rule, "e.g. 2x1024"))


def routing(text: str | None) -> "RoutingSpec | None":
    """Parse the skew of expert choices. Raises InputError if it is not a word, number or file of counts."""
    if text is None:
        return None
    if text == "balanced":
        return "balanced"
    number = text.replace(".", "", 1)
    if number.isascii() and number.isdigit() and len(number) < MAX_DIGITS:
        return float(text)
    from meshwright.plans.files.expert_pairs_file import read_routing_file

    return read_routing_file(text)


def capacity(text: str | None) -> "CapacitySpec | None":
    """Parse the experts' capacity. Raises InputError if it is neither a number nor a mapping."""
    if text is None:
        return None
    from meshwright.plans.files.validation_messages import validated
    from meshwright.plans.files.yaml_text import read_value
    from meshwright.plans.forms.short import CapacitySpec

    value = read_value(text, "capacity")
    try:
        return validated(CapacitySpec, value if isinstance(value, Mapping) else {"factor": value})
    except InputError as error:
        wrong = [replace(problem, field=f"workload.capacity.{problem.field}") for problem in error.problems]
        raise InputError(wrong) from None


def optimizer(text: str) -> "str | OptimizerSpec":
    """Parse an optimizer, a name or a mapping with options. Raises InputError if it is neither."""
    from meshwright.plans.files.validation_messages import validated
    from meshwright.plans.files.yaml_text import read_value
    from meshwright.plans.forms.short import OptimizerSpec

    value = read_value(text, "optimizer")
    if not isinstance(value, Mapping):
        return text.strip()
    try:
        return validated(OptimizerSpec, value)
    except InputError as error:
        wrong = [replace(problem, field=f"workload.optimizer.{problem.field}") for problem in error.problems]
        raise InputError(wrong) from None


def adapter(text: str | None) -> "AdapterSpec | None":
    """Parse a mapping of adapters; None without one. Raises InputError if it is none."""
    if text is None:
        return None
    from meshwright.plans.files.validation_messages import validated
    from meshwright.plans.files.yaml_text import read_value
    from meshwright.plans.forms.short import AdapterSpec

    value = read_value(text, "adapter")
    if not isinstance(value, Mapping):
        raise InputError(Problem("workload.adapter", text, "must be a mapping", "'{rank: 16}'"))
    try:
        return validated(AdapterSpec, value)
    except InputError as error:
        wrong = [replace(problem, field=f"workload.adapter.{problem.field}") for problem in error.problems]
        raise InputError(wrong) from None


def solving(seconds: float | None, steps: int | None, seed: int | None) -> "SolverOptions | None":
    """Return the solver's options; None without ``--solve``. Raises InputError for others without it."""
    if seconds is not None:
        from meshwright.verbs.plan.solver_schedules import SolverOptions

        return SolverOptions(seconds=seconds, steps=steps, seed=seed or 0)
    rule, hint = "is for --solve", "--solve 60, or leave it out"
    given = {"solve-steps": steps, "seed": seed}
    problems = [Problem(name, value, rule, hint) for name, value in given.items() if value is not None]
    if problems:
        raise InputError(problems)
    return None
