"""``meshwright validate``: compare predictions with measured runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import check_writable, errors_as_messages, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.validation.serving.validate_serving import ServingValidation
    from meshwright.validation.validate_runs import Validation


def validate(
    runs: Annotated[str, typer.Argument(metavar="RUNS", help="A table of measured runs (CSV).")],
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", metavar="FILE", help="Levels that calibrate wrote, for serving runs."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw predicted against measured to this SVG file.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Predict measured runs and report the errors."""
    with errors_as_messages(as_json, debug):
        from meshwright import api

        if picture:
            check_writable(picture, "picture")
        found = api.validate(runs, calibration=calibration)
        if picture:
            from meshwright.present.svg.validation_scatter import scatter

            write_whole(picture, scatter(found.points(), f"Predicted against measured: {Path(runs).name}"))
        if as_json:
            _print(found)
        else:
            from meshwright.cli.terminal.validation_answer import print_validation

            print_validation(found, str(picture) if picture else None)


def _print(found: Validation | ServingValidation) -> None:
    """Print one JSON document with one line per run; there may be a million."""
    write = sys.stdout.write
    encode = json.JSONEncoder(
        ensure_ascii=not sys.stdout.encoding.lower().startswith("utf"), allow_nan=False
    ).encode
    write('{\n"rows": [')
    for text in _separated(map(encode, found.rows())):
        write(text)
    write('],\n"skipped": [')
    for text in _separated(map(encode, found.skipped_rows())):
        write(text)
    write(f'],\n"summary": {encode(found.summary)}\n}}\n')
    sys.stdout.flush()


def _separated(texts: Iterator[str]) -> Iterator[str]:
    between = "\n"
    for text in texts:
        yield between + text
        between = ",\n"
