"""Print the files of a job, their readers, and the command that starts it."""

import sys
from typing import Any

from meshwright.present.exported_files import print_files


def render_launch(data: dict[str, Any], folder: str | None) -> None:
    """Print a job in its JSON form; readers and what was started go to standard error."""
    print_files(data["files"], folder)
    for row in data["accepted"]:
        print(f"Accepted: {row['path']}, read by {row['by']}", file=sys.stderr)
    if data["submitted"] is None:
        print(f"To start it: {data['command']}", file=sys.stderr)
    else:
        print(f"Started: {data['command']}", file=sys.stderr)
        print(data["submitted"], end="\n" if data["submitted"] else "", file=sys.stderr)
