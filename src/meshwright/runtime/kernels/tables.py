"""Tables that depend on shapes alone (rotations, masks), made once on a rank and shared by its layers."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tables:
    """Made on first use, kept for the run; they are constants, not activations."""

    made: dict[Hashable, Any] = field(default_factory=dict)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The table of ``key``."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]
