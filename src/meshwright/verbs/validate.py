"""Validate a table of runs that train, or of runs that serve, which is known by its columns."""

from pathlib import Path

from meshwright.cost.serving.level_calibration import read_levels
from meshwright.errors import InputError, Problem
from meshwright.validation.serving.predict_serving import predict_serving
from meshwright.validation.serving.read_serving_table import is_serving_table
from meshwright.validation.serving.validate_serving import ServingValidation, validate_serving
from meshwright.validation.validate_runs import Validation, validate_runs


def validated_table(path: str | Path, calibration: str | Path | None) -> Validation | ServingValidation:
    """Return predictions and errors of a table. Raises InputError."""
    if is_serving_table(path):
        levels = None if calibration is None else read_levels(calibration)
        return validate_serving(path, lambda runs: predict_serving(runs, levels))
    if calibration is not None:
        rule = f"has levels of serving, and {path} has no columns isl and osl of serving runs"
        raise InputError(Problem("calibration", str(calibration), rule, "leave --calibration out"))
    return validate_runs(path)
