"""``meshwright measure``: measure a machine's kernels and collectives and write a cluster file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import check_writable, errors_as_messages, print_answer, write_all
from meshwright.cli.terminal.progress import ProgressLine
from meshwright.errors import InputError, Problem

if TYPE_CHECKING:
    from meshwright.verbs.measure import Progress


def measure(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the cluster file here.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="CLUSTER", help="Cluster that has the size, cards, tiers and price."),
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Seconds to take, at most 600.")] = 300.0,
    processes: Annotated[
        int | None, typer.Option("--processes", help="Local processes, if no launcher started this one.")
    ] = None,
    tests: Annotated[
        list[str] | None,
        typer.Option(
            "--collective-tests",
            metavar="FILE",
            help="Read output of nccl-tests or rccl-tests instead of measuring; needs --on. Repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure this machine, alone or under torchrun or Slurm, and write a cluster file."""
    with errors_as_messages(as_json, debug):
        answer = measured_answer(output, on, budget, processes, tests or (), ProgressLine())
        if answer is not None:
            print_answer(answer, as_json)


def measured_answer(
    output: Path | None,
    on: str | None,
    budget: float,
    processes: int | None,
    tests: Sequence[str],
    progress: "Progress | None",
) -> Answer | None:
    """Measure this machine or read ``tests`` of collectives. Return None on launched ranks other than the first."""
    from meshwright import api
    from meshwright.present.runs.measured_machine import render_measured

    if output:
        check_writable(output, "output")
    if tests and not on:
        rule = "tests of collectives say nothing of devices"
        raise InputError(Problem("on", None, rule, "--on 'h100-sxm-80gb x 64'"))
    found = (
        api.measured_collectives(tests, on or "")
        if tests
        else api.measure(budget, processes=processes, on=on, progress=progress)
    )
    if found is None:
        return None
    if output:
        raw = {output.with_suffix(".measured.json"): found.raw} if found.raw else {}
        write_all({output: found.text, **raw})
    return Answer(found.to_json(), lambda data: render_measured(data, str(output) if output else None))
