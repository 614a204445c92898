"""Print a validation of runs that train or of runs that serve."""

from pathlib import Path

from meshwright import api
from meshwright.cli.terminal.answer import Answer
from meshwright.cli.terminal.output import write_whole
from meshwright.present.runs.serving_validation import render_serving_validation
from meshwright.present.runs.validation import render_validation
from meshwright.present.svg.validation_scatter import scatter
from meshwright.validation.serving.validate_serving import ServingValidation
from meshwright.validation.validate_runs import Validation


def print_validation(found: Validation | ServingValidation, picture: str | None) -> None:
    """Print the summary, some runs, and the reasons for skipped ones; ``picture``: the file that was drawn."""
    if isinstance(found, ServingValidation):
        skipped = found.skipped_ids()
        render_serving_validation(found.summary, found.rows(), skipped, found.levels(), picture)
    else:
        render_validation(found.summary, found.rows(), found.skipped_ids(), picture)


def validated(runs: str | Path, calibration: str | Path | None, picture: str | Path | None) -> Answer:
    """Return the answer to ``validate``; ``picture`` is written if it is asked for."""
    found = api.validate(runs, calibration=calibration)
    if picture:
        title = f"Predicted against measured: {Path(runs).name}"
        write_whole(Path(picture), scatter(found.points(), title))
    data = {"rows": list(found.rows()), "skipped": list(found.skipped_rows()), "summary": found.summary}
    return Answer(data, lambda data: print_validation(found, None if picture is None else str(picture)))
