"""The reason for a choice of a plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one field has its value. ``text`` says what the best plans with other values cost.

    ``loss``: how much longer a step takes with the best other value, as a fraction; infinite where none other fits.
    """

    field: str
    value: str
    text: str
    loss: float = 0.0

    def to_json(self) -> dict[str, str]:
        """JSON-ready data."""
        return {"field": self.field, "value": self.value, "reason": self.text}
