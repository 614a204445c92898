"""Print a measured machine: the cluster file or its path, findings, outliers."""

import sys
from typing import Any


def render_measured(data: dict[str, Any], written: str | None) -> None:
    """Print a measurement in its JSON form; everything but the file goes to standard error."""
    print(written if written else data["cluster"], end="\n" if written else "", flush=True)
    for finding in data["findings"]:
        print(f"Found: {finding}", file=sys.stderr)
    for one in data["odd"]:
        print(f"Odd: {one}", file=sys.stderr)
