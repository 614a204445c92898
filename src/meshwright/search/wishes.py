"""What a question wishes of plans: choices that are fixed, and values that no plan may have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.plan.coded import told
from meshwright.plan.short import Offload

Kept = int | float | str | bool | tuple[str, ...] | Offload
"""A value of a choice that a question names."""
Keep = Mapping[str, Kept]
Forbidden = Mapping[str, tuple[Kept, ...]]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Choices by the name of a plan's field, with the value that they keep, and with those that are forbidden."""

    keep: Keep
    forbid: Forbidden

    def of(self, name: str) -> Iterator[tuple[Kept, bool]]:
        """Values of a choice that are named, and whether they are wanted."""
        if name in self.keep:
            yield self.keep[name], True
        for value in self.forbid.get(name, ()):
            yield value, False


def asked(name: str, value: Kept, *, wanted: bool) -> str:
    """Why a plan was left out, in words."""
    return f"{'not ' if wanted else ''}{name} = {told(value)}, as asked"
