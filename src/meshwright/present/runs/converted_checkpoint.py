"""Print the result of a checkpoint conversion."""

from typing import Any


def render_converted(data: dict[str, Any]) -> None:
    """Print a conversion in its JSON form."""
    print(
        f"{data['folder']}: {data['tensors']} tensors, {data['merged']} of them with the adapters of "
        f"step {data['step']}"
    )
