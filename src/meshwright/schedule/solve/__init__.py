"""Lists that no schedule of the table has: searched for one pipeline, its times and its memory limit.

``solve(pipeline, effort)`` returns them with a bound that no lists are below, and with how they were found.
"""

from meshwright.schedule.solve.solver import METHODS, Effort, Method, Solution, solve

__all__ = ["METHODS", "Effort", "Method", "Solution", "solve"]
