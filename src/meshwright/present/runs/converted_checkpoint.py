"""Print the result of a checkpoint conversion."""

from typing import Any

from meshwright.units import format_bytes

SHOWN = 5
"""Names of states that are printed."""


def render_converted(data: dict[str, Any]) -> None:
    """Print a conversion in its JSON form."""
    if "merged" in data:
        print(
            f"{data['folder']}: {data['tensors']} tensors, {data['merged']} of them with the adapters of "
            f"step {data['step']}"
        )
        return
    print(
        f"{data['folder']}: {data['tensors']} tensors of step {data['step']} from {data['source']} to "
        f"{data['target']}, {format_bytes(data['size_bytes'])}"
    )
    if data["left_out"]:
        first, more = data["left_out"][:SHOWN], len(data["left_out"]) - SHOWN
        print(f"Left out: {', '.join(first)}{f' and {more} more' if more > 0 else ''}")
