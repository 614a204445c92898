"""Print an export: the files or their paths, and what the target cannot express."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def print_files(files: Mapping[str, str], folder: str | None) -> None:
    """Print the paths of files in a folder, or their texts."""
    for name, text in files.items():
        print(f"{folder}/{name}" if folder else f"# ==== {name} ====\n{text}", flush=True)


def render_export(data: dict[str, Any], folder: str | None) -> None:
    """Print an export in its JSON form; what the target cannot express goes to standard error."""
    print_files(data["files"], folder)
    if "check" in data:
        for line in _RENDERED[data["check"]["by"]](data["check"]):
            print(line, file=sys.stderr)
    for refusal in data["refused"]:
        line = f"Not said to the target: {refusal['key']} = {refusal['value']} ({refusal['why']})"
        print(line, file=sys.stderr)


def _parser_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    outcome = "accepted" if verdict["accepted"] else f"refused: {verdict['message']}"
    read = ", ".join(f"{name} = {value}" for name, value in verdict["values"].items())
    yield f"The target's own parser: {outcome}" + (f" ({read})" if read else "")


def _dry_lines(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures of both sides, the explained differences, and the others."""
    steps = verdict["micro_batches"]
    yield f"A step of the target itself ({steps['run']} of {steps['of']} micro-batches) against the plan's Program:"
    for one in verdict["classes"]:
        yield f"  pipeline rank {one['pipeline_rank']}, as rank {one['rank']} ({one['seconds']} s)"
        for row in one["counts"]:
            yield f"    {row['quantity']}: plan {row['plan']:,}, target {row['target']:,} {row['unit']}"
        for row in one["collectives"]:
            sides = (
                f"{side} {row[side + '_count']:,} collectives of {row[side + '_bytes']:,} bytes"
                for side in ("plan", "target")
            )
            yield f"    {row['collective']} ({row['size']} ranks): {', '.join(sides)}"
        for row in one["explained"]:
            yield f"    explained: {row['name']}: plan {row['plan']}; target {row['target']} ({row['why']})"
        for row in one["disagreements"]:
            yield f"    DISAGREES: {row['name']}: plan {row['plan']}; target {row['target']}"
    explained = len({row["name"] for one in verdict["classes"] for row in one["explained"]})
    deviation = verdict["message"] or "what the plan means"
    yield f"The target does {deviation}; {explained} kinds of difference are explained"


_RENDERED: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "parser": _parser_lines,
    "dry": _dry_lines,
}
