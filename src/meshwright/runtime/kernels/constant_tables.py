"""Cache of tables that depend on shapes alone (rotary tables, masks), shared by the layers of a rank."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tables:
    """Tables created on first use and kept for the run; they are constants, not activations."""

    made: dict[Hashable, Any] = field(default_factory=dict)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the table of ``key``; create it with ``make`` on first use."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]
