"""An imported file as text: the plan itself or where it was written, what was not read, what is doubtful."""

import sys
from typing import Any


def render_import(data: dict[str, Any], written: str | None, stack_file: str) -> None:
    """Print an import in its JSON form; what is not the plan goes to standard error."""
    if written:
        print(f"{written}: a plan from a file for {data['release']}", flush=True)
    else:
        print(data["plan_text"], end="", flush=True)
    if data["stack_text"] and written:
        print(f"The file runs its framework in its own way: {stack_file} says how.", file=sys.stderr)
    elif data["stack_text"]:
        print(f"# ==== {stack_file} ====\n{data['stack_text']}", end="", flush=True)
    for line in unread_lines(data["unread"]):
        print(line, file=sys.stderr)
    for problem in data["problems"]:
        print(f"Warning: {problem['field']}: {problem['rule']}. {problem['suggestion']}", file=sys.stderr)


def unread_lines(unread: list[dict[str, str]]) -> list[str]:
    """One line for each key that has no counterpart."""
    return [f"Not in the plan: {u['key']} {u['value']}".rstrip() + f" ({u['why']})" for u in unread]
