"""Print a validation of runs that train or of runs that serve."""

from meshwright.present.runs.serving_validation import render_serving_validation
from meshwright.present.runs.validation import render_validation
from meshwright.validation.serving.validate_serving import ServingValidation
from meshwright.validation.validate_runs import Validation


def print_validation(found: Validation | ServingValidation, picture: str | None) -> None:
    """Print the summary, some runs, and the reasons for skipped ones; ``picture``: the file that was drawn."""
    if isinstance(found, ServingValidation):
        skipped = found.skipped_ids()
        render_serving_validation(found.summary, found.rows(), skipped, found.levels(), picture)
    else:
        render_validation(found.summary, found.rows(), found.skipped_ids(), picture)
