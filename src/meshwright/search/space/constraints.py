"""User constraints on a search: fixed and forbidden values of plan fields."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.plans.choices.plan_choice import format_choice
from meshwright.plans.forms.host_offload import Offload

Value = int | float | str | bool | tuple[str, ...] | Offload
"""A value of a choice in a question."""
Keep = Mapping[str, Value]
Forbidden = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class SearchConstraints:
    """Fixed and forbidden values, by the name of the plan field."""

    keep: Keep
    forbid: Forbidden

    def of(self, name: str) -> Iterator[tuple[Value, bool]]:
        """Yield the constrained values of a choice, each with true if wanted and false if forbidden."""
        if name in self.keep:
            yield self.keep[name], True
        for value in self.forbid.get(name, ()):
            yield value, False


def exclusion_reason(name: str, value: Value, *, wanted: bool) -> str:
    """Return why a plan was left out, in words."""
    return f"{'not ' if wanted else ''}{name} = {format_choice(value)}, as asked"
