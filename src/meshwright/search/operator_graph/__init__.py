"""Pipelines over a graph of operators with branches: the operators of each rank and the order of its passes.

``solve(task, effort)`` coarsens, solves and refines; ``problem.py`` has what is asked and what answers it.
"""

from meshwright.search.operator_graph.graph import Cost, Graph
from meshwright.search.operator_graph.problem import RanksAndLists, Task
from meshwright.search.operator_graph.solve import Solution, solve

__all__ = ["Cost", "Graph", "RanksAndLists", "Solution", "Task", "solve"]
