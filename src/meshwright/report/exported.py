"""An export as text: the files themselves, or where they were written, and what the target could not say."""

import sys
from typing import Any


def render_export(data: dict[str, Any], folder: str | None) -> None:
    """Print an export in its JSON form; what was not said goes to standard error."""
    for name, text in data["files"].items():
        print(f"{folder}/{name}" if folder else f"# ==== {name} ====\n{text}", flush=True)
    if "check" in data:
        verdict = data["check"]
        said = "accepted" if verdict["accepted"] else f"refused: {verdict['message']}"
        read = ", ".join(f"{name} = {value}" for name, value in verdict["values"].items())
        print(f"The target's own parser: {said}" + (f" ({read})" if read else ""), file=sys.stderr)
    for refusal in data["refused"]:
        line = f"Not said to the target: {refusal['key']} = {refusal['value']} ({refusal['why']})"
        print(line, file=sys.stderr)
