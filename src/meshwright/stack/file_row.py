"""A row of a list in a stack file."""

from meshwright.plans.files.strict_types import Strict


class FileRow(Strict):
    """A row with named keys."""

    def said(self) -> dict[str, object]:
        """Return the keys that differ from their defaults, as a file holds them."""
        return self.model_dump(mode="json", exclude_defaults=True)
