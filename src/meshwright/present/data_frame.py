"""Convert the documents of the verbs to pandas frames."""

from collections.abc import Mapping
from typing import Any

from meshwright.errors import InputError, Problem

ROWS = ("plans", "rows", "models")
"""Lists of a document of which a frame has the elements; the first that it has."""


def data_frame(document: Mapping[str, Any]) -> Any:
    """Return a frame with a row for each plan, row or model, and the keys joined by dots as columns.

    A document without such a list is one row. Raises InputError where pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as missing:
        problem = Problem("to_frame", "pandas", "is not installed", "pip install 'meshwright[notebook]'")
        raise InputError(problem) from missing
    rows = next((document[name] for name in ROWS if name in document), [document])
    return pandas.json_normalize(rows)
