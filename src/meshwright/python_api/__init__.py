"""The verbs as Python functions whose keywords are the long options of the command line.

Every function returns an Answer, which prints as the verb does. Wrong input raises InputError with all problems; a
question without an answer raises InfeasibleError. Options that write a file take its path.
"""

from meshwright.cli.terminal.answer import Answer
from meshwright.python_api.paths import PathLike
from meshwright.python_api.plans import (
    Constants,
    calibrate,
    check,
    compare,
    describe,
    devices,
    explain,
    export,
    import_file,
    models,
    plan,
    predict,
    report,
    schedule,
    stacks,
    validate,
)
from meshwright.python_api.runs import convert, ingest, launch, measure, probe, run, verify

__all__ = [
    "Answer",
    "Constants",
    "PathLike",
    "calibrate",
    "check",
    "compare",
    "convert",
    "describe",
    "devices",
    "explain",
    "export",
    "import_file",
    "ingest",
    "launch",
    "measure",
    "models",
    "plan",
    "predict",
    "probe",
    "report",
    "run",
    "schedule",
    "stacks",
    "validate",
    "verify",
]
