"""Read the packaged tables of hardware facts in ``data/``: accelerators, nodes, prices, reliability.

Every row has a source and a confidence: ``high`` = read in the named source, ``medium`` = partly read or
sources disagree, ``low`` = announced or second-hand, ``unchecked`` = general knowledge, not re-checked.
"""

import csv
from functools import cache
from importlib.resources import files

Row = dict[str, str]


@cache
def read_table(name: str) -> tuple[Row, ...]:
    """Return all rows of ``data/NAME.csv``; values are text, empty = unknown. Do not change the rows."""
    text = files("meshwright.cluster").joinpath("data", f"{name}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
