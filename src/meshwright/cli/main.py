"""The entry point ``meshwright``: one command per verb, errors as messages, and the exit codes.

0 done; 1 the answer is no; 2 the input is wrong. Verbs import what they need when they run, so that ``--help`` is
quick. No environment variable is read except those that the terminal library honours (``NO_COLOR``).
"""

import gc
import io
import os
import sys

import typer

from meshwright.cli import (
    calibrate,
    check,
    compare,
    convert,
    describe,
    explain,
    export,
    import_,
    ingest,
    launch,
    list_catalogue,
    measure,
    plan,
    predict,
    probe,
    report,
    run,
    schedule,
    validate,
    verify,
    web,
)
from meshwright.cli.options.serving_options import PlanCommand
from meshwright.cli.options.strategy_names_help import NamingCommand
from meshwright.cli.terminal.usage_errors import Verbs

app = typer.Typer(
    cls=Verbs,
    name="meshwright",
    help="Plan, predict and run the way a large model is spread over many devices.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("plan", cls=PlanCommand)(plan.plan)
app.command("describe")(describe.describe)
app.command("models")(list_catalogue.models)
app.command("devices")(list_catalogue.devices)
app.command("stacks")(list_catalogue.stacks)
app.command("predict")(predict.predict)
app.command("compare")(compare.compare)
app.command("explain")(explain.explain)
app.command("report")(report.report)
app.command("export", cls=export.Export)(export.export)
app.command("import", cls=NamingCommand)(import_.import_)
app.command("check", cls=NamingCommand)(check.check)
app.command("verify")(verify.verify)
app.command("run")(run.run)
app.command("launch", cls=NamingCommand)(launch.launch)
app.command("convert")(convert.convert)
app.command("measure")(measure.measure)
app.command("probe")(probe.probe)
app.command("ingest")(ingest.ingest)
app.command("validate")(validate.validate)
app.command("calibrate")(calibrate.calibrate)
app.command("schedule")(schedule.schedule)
app.command("web")(web.web)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from meshwright import __version__

        typer.echo(f"meshwright {__version__}")
        raise typer.Exit()


def main() -> None:
    """Run the command line. Characters that the terminal's encoding lacks are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    _start_lightly()
    try:
        app()
    finally:
        gc.freeze()  # the interpreter's last collections would walk all objects, only to end


def _start_lightly() -> None:
    """Shorten the start-up of short commands: fewer numpy threads and garbage collections."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small here
    gc.set_threshold(50_000)
