"""Meshwright plans, predicts and runs the way a large model is spread over many devices.

The verbs are functions here, as ``meshwright.plan``; the first use of one loads what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from meshwright.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from meshwright.python_api import (
        Answer,
        calibrate,
        check,
        compare,
        convert,
        describe,
        devices,
        explain,
        export,
        import_file,
        ingest,
        launch,
        measure,
        models,
        plan,
        predict,
        probe,
        report,
        run,
        schedule,
        stacks,
        validate,
        verify,
    )

__all__ = [
    "Answer",
    "InfeasibleError",
    "InputError",
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
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return a public function or class, loaded at its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("meshwright.python_api"), name)


def __dir__() -> list[str]:
    """Return the public names and those already loaded."""
    return sorted({*globals(), *__all__})
