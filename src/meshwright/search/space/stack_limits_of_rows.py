"""The limits of a stack (``plans/rules/stack_limits``) asked of many plans: at once, or of equal rows only once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import distinct, map_distinct_rows
from meshwright.plans.choices import CHOICES
from meshwright.plans.rules.stack_limits import limits_of
from meshwright.plans.rules.stack_limits.limits import Condition, StackLimit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import ScheduleChoice

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
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
    ) -> Bools:
        """Return the mask of rows of a table of codes that a limit allows, in the shape of its columns together.

        ``values`` are what codes stand for, by column.
        """
        shape = np.broadcast_shapes(*(column.shape for column in table.values()))
        if not limit.reads:
            return np.full(shape, limit.allows(self._plan({})))
        columns = np.broadcast_arrays(*(table[name] for name in limit.reads))
        named = dict(zip(limit.reads, (column.ravel().astype(np.int64) for column in columns), strict=True))
        tables = {name: self._values(name, values) for name in limit.reads if name in CHOICES}
        found = (
            self._unbroken(limit.breaks, named, tables) if limit.breaks else self._asked(limit, named, tables)
        )
        return np.broadcast_to(found.reshape(columns[0].shape), shape)

    def _asked(self, limit: StackLimit, columns: Mapping[str, Ints], tables: Values) -> Bools:
        """Ask a limit of rows, of equal ones once."""

        def allows(*row: int) -> bool:
            given = dict(zip(columns, row, strict=True))
            return limit.allows(self._plan(given | {name: tables[name][given[name]] for name in tables}))

        return map_distinct_rows(allows, list(columns.values())).astype(np.bool_)

    def _unbroken(self, breaks: Condition, columns: Mapping[str, Ints], tables: Values) -> Bools:
        """Ask a condition of all rows with the same values of choices at once."""
        numbers = {name: column for name, column in columns.items() if name not in tables}
        result = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
        for rows in distinct([columns[name] for name in tables]).groups() if tables else [slice(None)]:
            given: dict[str, Any] = {name: column[rows] for name, column in numbers.items()}
            given |= {name: tables[name][columns[name][rows][0]] for name in tables}
            result[rows] = np.logical_not(breaks(self._plan(given)))
        return result

    def _plan(self, given: Mapping[str, Any]) -> PlanValues:
        setting = self.setting
        return PlanValues(setting.model.architecture, setting.workload, setting.stack, **given)

    def _values(self, name: str, values: Values | None) -> Sequence[Any]:
        if name == "schedule":
            return self.schedules
        return CHOICES[name].known or (values[name] if values else ())
