"""Print an imported plan: the plan or its path, what was not read, what is doubtful."""

import sys
from typing import Any


def render_import(data: dict[str, Any], written: str | None) -> None:
    """Print an import in its JSON form; everything but the plan goes to standard error."""
    if written:
        print(f"{written}: a plan from a file for {data['release']}", flush=True)
    else:
        print(data["plan_text"], end="", flush=True)
    for name, text in data["beside"].items():
        if written:
            print(f"{name}: {_subject(name)} that only the file describes.", file=sys.stderr)
        else:
            print(f"# ==== {name} ====\n{text}", end="", flush=True)
    for line in unread_lines(data["unread"]):
        print(line, file=sys.stderr)
    for problem in data["problems"]:
        print(f"Warning: {problem['field']}: {problem['rule']}. {problem['suggestion']}", file=sys.stderr)


def _subject(name: str) -> str:
    return "the model" if name.endswith(".json") else "the stack"


def unread_lines(unread: list[dict[str, str]]) -> list[str]:
    """Return one line for each key that has no counterpart."""
    return [f"Not in the plan: {u['key']} {u['value']}".rstrip() + f" ({u['why']})" for u in unread]
