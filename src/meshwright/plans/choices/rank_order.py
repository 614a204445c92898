"""The order of the axes in which ranks are numbered."""

from collections.abc import Iterator

import numpy as np

from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice, Values
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Axis
from meshwright.plans.setting import Setting

AXES = DEFAULT_RANK_ORDER
Order = tuple[Axis, ...]


def _all(setting: Setting) -> Values:
    return (DEFAULT_RANK_ORDER, *setting.stack.rank_orders)


def _orders_differ(given: ChoiceRuleInput, own: Order) -> Iterator[tuple[str, Bools]]:
    """Allow orders that reorder axes of degrees above 1, and keep a stage's ranks together for experts."""
    base, orders = given.base, given.values["order"]
    code = orders.index(own)
    if code:
        above = sum((getattr(base, axis) > 1).astype(np.int64) << i for i, axis in enumerate(AXES))
        turned = [[_of_axes(order, which) for order in orders] for which in range(2 ** len(AXES))]
        new = np.array([rows[code] not in rows[:code] for rows in turned])
        yield "equal to a plan with another rank order", new[above]
    if given.setting.model.architecture.moe is not None and own[-1] != "pp":
        yield "the experts' mesh has pp last", base.pp == 1


def _of_axes(order: Order, which: int) -> Order:
    """Return the order of the axes whose bits are set."""
    return tuple(axis for axis in order if which >> AXES.index(axis) & 1)


rank_order = Choice(
    path="layout.rank_order",
    listed=DEFAULT_RANK_ORDER,
    order=True,
    searched=SearchedChoice(usual=lambda setting: (DEFAULT_RANK_ORDER,), every=_all, rule=_orders_differ),
)
