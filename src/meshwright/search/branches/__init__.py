"""Pipelines whose stages form branches: which rank has which operators, and in what order it runs their passes.

``solve(task, effort)`` coarsens, solves and refines; ``task.py`` has what is asked and what answers it.
"""

from meshwright.search.branches.graph import Cost, Graph
from meshwright.search.branches.solver import Solution, solve
from meshwright.search.branches.task import Answer, Task

__all__ = ["Answer", "Cost", "Graph", "Solution", "Task", "solve"]
