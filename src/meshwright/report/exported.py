"""An export as text: the files themselves, or where they were written, and what the target could not say."""

import sys
from typing import Any


def render_export(data: dict[str, Any], folder: str | None) -> None:
    """Print an export in its JSON form; what was not said goes to standard error."""
    for name, text in data["files"].items():
        print(f"{folder}/{name}" if folder else f"# ==== {name} ====\n{text}", flush=True)
    for refusal in data["refused"]:
        line = f"Not said to the target: {refusal['key']} = {refusal['value']} ({refusal['why']})"
        print(line, file=sys.stderr)
