"""The gather time of zero3's parameters. Base plans enumerate it with the sharding."""

from typing import get_args

from meshwright.plans.choices.plan_choice import Choice
from meshwright.plans.forms.short import Gather, ShortPlan, default_gather

NEVER = "never"
"""The gather time of parameters that are not sharded."""
GATHERS: tuple[str, ...] = (NEVER, *get_args(Gather))


def _gather(plan: ShortPlan) -> str:
    """Return the gather time of a plan that shards its parameters."""
    if plan.sharding != "zero3":
        return NEVER
    return plan.gather or default_gather(plan.sharding, plan.layout.pp)


gather = Choice(
    path="gather",
    known=GATHERS,
    nothing=NEVER,
    read=_gather,
    write=lambda value: None if value == NEVER else value,
)
