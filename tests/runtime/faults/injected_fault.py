"""A fault that is put into the ranks of a plan, and which check must see it."""

from collections.abc import Callable
from dataclasses import dataclass

from covering_plans import Proven


@dataclass(frozen=True)
class Fault:
    name: str
    plan: Proven
    put_in: Callable[[], None]
    seen_by: str = "gradients"
    says: str = ""

    def is_seen(self, outcome) -> bool:
        return self.seen_by in outcome.caught_by and self.says in outcome.failure
