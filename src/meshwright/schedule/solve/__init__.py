"""Lists that no schedule of the table has: searched for one pipeline, its times and its memory limit.

``solve(pipeline, effort)`` returns them with a bound that no lists are below, and with how they were found;
``solve_task`` does so for stages that hold unequally much, or for the least latency.
"""

from meshwright.schedule.solve.solver import (
    METHODS,
    Effort,
    Method,
    Solution,
    Standing,
    Tell,
    least_time,
    solve,
    solve_task,
)
from meshwright.schedule.solve.task import Goal, Holding, Known, Task

__all__ = [
    "METHODS",
    "Effort",
    "Goal",
    "Holding",
    "Known",
    "Method",
    "Solution",
    "Standing",
    "Task",
    "Tell",
    "least_time",
    "solve",
    "solve_task",
]
