"""Answer ``import``: read another framework's file, and write the plan."""

from pathlib import Path

from meshwright import api
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import check_writable, write_all
from meshwright.errors import InputError, Problem
from meshwright.present.imported_plan import render_import
from meshwright.verbs.import_ import ImportRequest


def imported(file: str | Path, request: ImportRequest, output: Path | None) -> Answer:
    """Read a file as a plan, and write the plan with what belongs to it."""
    if output:
        check_writable(output, "output")
        if output.exists() and output.samefile(file):
            rule = "is the file that is read: it would be lost"
            raise InputError(Problem("output", str(output), rule, "another name"))
    data = api.import_file(file, request).to_json(output.stem if output else "plan")
    if output:
        more_files = {output.with_name(name): text for name, text in data["beside"].items()}
        write_all({output: data["plan_text"], **more_files})
    return Answer(data, lambda data: render_import(data, str(output) if output else None))
