"""A restriction of one framework, stated once: the plans that break it, and the message.

A limit reads one plan through ``PlanValues``. ``check`` and ``export`` make these of a plan; a search makes them of
rows of its arrays, with only the columns that a limit ``reads``, and asks once for equal rows. Where a limit has a
condition of its own, degrees may be arrays, and a search asks it for all rows at once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.plan_values import Flags, PlanValues

Find = Callable[[PlanValues], Iterator[Problem]]
Condition = Callable[[PlanValues], Flags]


@dataclass(frozen=True, slots=True)
class StackLimit:
    """``find`` yields the problems of a plan; ``reason`` is what a search counts those under that have any.

    The reason reads on behind the stack's name.

    ``reads`` names the columns of ``PlanArrays`` that ``find`` looks at. A limit without any is one of model,
    workload and stack, which every plan of a question breaks or none.

    ``breaks``: whether ``find`` yields errors, of values whose degrees may be arrays.
    """

    reason: str
    reads: tuple[str, ...]
    find: Find
    breaks: Condition | None = None

    def allows(self, plan: PlanValues) -> bool:
        """Return true if the plan has no problem that makes it illegal."""
        return not any(problem.severity == "error" for problem in self.find(plan))


def limit(reason: str, *reads: str, breaks: Condition | None = None) -> Callable[[Find], StackLimit]:
    """Make a limit of a function that yields problems; with a condition it is only asked where that holds."""

    def made(find: Find) -> StackLimit:
        if breaks is None:
            return StackLimit(reason, reads, find)
        return StackLimit(reason, reads, lambda plan: find(plan) if breaks(plan) else iter(()), breaks)

    return made


def broken(limits: Iterable[StackLimit], plan: PlanValues) -> list[Problem]:
    """Return the problems of all limits that a plan breaks."""
    return [problem for each in limits for problem in each.find(plan)]
