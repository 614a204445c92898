"""Results of the page of stragglers, kept between calls."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kept_parts import kept as kept_in

KEPT = Path(__file__).parents[2] / ".cache" / "stragglers"


def kept(name: str, make: Callable[[], Any]) -> Any:
    """Return the result of a part, made now or by an earlier call."""
    return kept_in(name, make, KEPT)
