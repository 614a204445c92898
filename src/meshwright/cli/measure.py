"""``meshwright measure``: measure a machine's kernels and collectives and write a cluster file."""

from pathlib import Path
from typing import Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import check_writable, errors_as_messages, print_json, write_all
from meshwright.cli.terminal.progress import ProgressLine
from meshwright.errors import InputError, Problem


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
        from meshwright import api

        if output:
            check_writable(output, "output")
        if tests and not on:
            rule = "tests of collectives say nothing of devices"
            raise InputError(Problem("on", None, rule, "--on 'h100-sxm-80gb x 64'"))
        found = (
            api.measured_collectives(tests, on or "")
            if tests
            else api.measure(budget, processes=processes, on=on, progress=ProgressLine())
        )
        if found is None:
            return
        if output:
            raw = {output.with_suffix(".measured.json"): found.raw} if found.raw else {}
            write_all({output: found.text, **raw})
        if as_json:
            print_json(found.to_json())
        else:
            from meshwright.present.runs.measured_machine import render_measured

            render_measured(found.to_json(), str(output) if output else None)
