"""The limits of a stack (``plans/rules/stack_limits``) asked of many plans at once: of equal rows only once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import map_distinct_rows
from meshwright.plans.choices import CHOICES
from meshwright.plans.rules.stack_limits import limits_of
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice

Values = Mapping[str, Sequence[Any]]


class StackLimitsOfRows:
    """The limits of a question's stack; ``schedules`` are what the codes of that column mean."""

    def __init__(self, setting: Setting, schedules: Sequence[ScheduleChoice]) -> None:
        self.setting, self.schedules = setting, schedules
        self.limits = limits_of(setting.stack)

    def reading(self, columns: Collection[str]) -> Iterator[StackLimit]:
        """Return the limits that read none but these columns."""
        return (limit for limit in self.limits if set(limit.reads) <= set(columns))

    def reason(self, limit: StackLimit) -> str:
        """Return what plans that break a limit are counted under."""
        return f"{self.setting.stack.id} {limit.reason}"

    def allowed(
        self, limit: StackLimit, table: Mapping[str, NDArray[Any]], values: Values | None = None
    ) -> NDArray[np.bool_]:
        """Return the mask of rows of a table of codes that a limit allows, in the shape of its columns together.

        ``values`` are what codes stand for, by column.
        """
        shape = np.broadcast_shapes(*(column.shape for column in table.values()))
        columns = np.broadcast_arrays(*(table[name] for name in limit.reads))
        setting = self.setting
        tables = {name: self._values(name, values) for name in limit.reads if name in CHOICES}

        def allows(*row: int) -> bool:
            given = dict(zip(limit.reads, row, strict=True))
            given |= {name: tables[name][given[name]] for name in tables}
            plan = PlanValues(setting.model.architecture, setting.workload, setting.stack, **given)
            return limit.allows(plan)

        if not limit.reads:
            return np.full(shape, allows())
        found = map_distinct_rows(allows, [column.ravel().astype(np.int64) for column in columns])
        return np.broadcast_to(found.astype(np.bool_).reshape(columns[0].shape), shape)

    def _values(self, name: str, values: Values | None) -> Sequence[Any]:
        if name == "schedule":
            return self.schedules
        return CHOICES[name].known or (values[name] if values else ())
