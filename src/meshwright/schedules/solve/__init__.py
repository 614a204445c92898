"""Schedule solver: search action lists for one pipeline, its times and its memory limit.

``solve(pipeline, effort)`` returns them with a bound that no lists are below, and with how they were found;
``solve_task`` does so for stages that hold unequally much, or for the least latency.
"""

from meshwright.schedules.solve.solver import (
    METHODS,
    Effort,
    Method,
    ReportSolverProgress,
    Solution,
    SolverProgress,
    makespan_lower_bound,
    solve,
    solve_task,
)
from meshwright.schedules.solve.solver_input import Goal, InitialList, SolverInput, StageMemory

__all__ = [
    "METHODS",
    "Effort",
    "Goal",
    "InitialList",
    "Method",
    "ReportSolverProgress",
    "Solution",
    "SolverInput",
    "SolverProgress",
    "StageMemory",
    "makespan_lower_bound",
    "solve",
    "solve_task",
]
