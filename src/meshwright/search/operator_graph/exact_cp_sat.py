"""Exact placement and action lists for a graph of stages by constraint programming (CP-SAT of OR-tools).

As ``schedules/solve/constraint_programming.py``, with the rank of every stage to be found too (a flexible job shop,
arXiv 2503.09357): every pass is an optional interval on each rank, there if its stage is; passes that need each
other across ranks leave a message's time between them; what a stage keeps, and its states, are optional intervals in
a rank's memory. Ranks are alike, so they are numbered as stages first use them. Bytes are counted in units of which
a rank has ``FINEST`` or little more: where that rounds, it rounds down, so that the bound holds, and answers are
counted in bytes before they are taken.
"""

from importlib import import_module
from typing import Any, NamedTuple

from meshwright.schedules.solve.constraint_programming import ENDED, WORKERS
from meshwright.search.operator_graph.graph import Groups, merged
from meshwright.search.operator_graph.greedy_lists import needs_of
from meshwright.search.operator_graph.problem import RanksAndLists, Task

FINEST = 10**6
"""Units of memory that a rank has at most."""


class Proof(NamedTuple):
    """The best answer that was found, if any, and a step that no lists of these groups are below."""

    found: RanksAndLists | None
    bound: int
    interrupted: bool = False


def prove(
    task: Task, groups: Groups, start: RanksAndLists | None, bound: int, seconds: float, seed: int
) -> Proof:
    """Solve with these groups as stages, no longer than ``start`` if it is given. Needs OR-tools."""
    return _Model(task, groups, start, bound).least(seconds, seed)


class _Model:
    """Variables and constraints."""

    def __init__(self, task: Task, groups: Groups, start: RanksAndLists | None, bound: int) -> None:
        self.cp_model = import_module("ortools.sat.python.cp_model")
        self.model = self.cp_model.CpModel()
        self.task, self.groups, self.graph = task, groups, merged(task.graph, groups)
        self.stages, self.total = len(self.graph.costs), self.task.micro_batches
        one_by_one = self.graph.work + 2 * sum(self.graph.edges.values())
        self.horizon = start.step if start else self.total * one_by_one
        self.on = [self._ranks_of(stage) for stage in range(self.stages)]
        self.starts = [
            [self.model.new_int_var(0, self.horizon, "") for _ in range(self.total)]
            for _ in range(3 * self.stages)
        ]
        self.step = self.model.new_int_var(bound, self.horizon, "step")
        if start:
            self._hint(start)
        self._order()
        self._alike()
        for rank in range(self.task.ranks):
            self._rank(rank)
        self.model.minimize(self.step)

    def _ranks_of(self, stage: int) -> list[Any]:
        on = [self.model.new_bool_var("") for _ in range(self.task.ranks)]
        self.model.add_exactly_one(on)
        return on

    def _hint(self, start: RanksAndLists) -> None:
        """Where and when the passes of the start are; its ranks in the order in which stages use them."""
        known = list(dict.fromkeys(start.placement))
        for on, rank in zip(self.on, start.placement, strict=True):
            for number, here in enumerate(on):
                self.model.add_hint(here, number == known.index(rank))
        for actions, begins in zip(start.lists, start.timeline.start, strict=True):
            for action, begin in zip(actions, begins, strict=True):
                code = "FIW".index(action.kind) * self.stages + (action.stage or 0)
                self.model.add_hint(self.starts[code][action.micro_batch or 0], round(begin))

    def _order(self) -> None:
        """Constrain passes to follow their inputs, micro-batches to keep their order, and the step to end last."""
        away = {edge: self._away(*edge) for edge in self.graph.edges}
        for code, needed in enumerate(needs_of(self.graph, range(self.stages))):
            for m, begin in enumerate(self.starts[code]):
                for source, delay in needed:
                    stage, other = sorted((code % self.stages, source % self.stages))
                    crosses = delay * away[stage, other] if delay else 0
                    self.model.add(begin >= self._end(source, m) + crosses)
                if m:
                    self.model.add(begin >= self._end(code, m - 1))
            self.model.add(self.step >= self._end(code, self.total - 1))

    def _end(self, code: int, micro_batch: int) -> Any:
        return self.starts[code][micro_batch] + self.graph.seconds[code]

    def _away(self, stage: int, other: int) -> Any:
        """Return a variable that is true where two stages lie on different ranks."""
        away = self.model.new_bool_var("")
        for here, there in zip(self.on[stage], self.on[other], strict=True):
            self.model.add_bool_or(here.negated(), there, away)
        return away

    def _alike(self) -> None:
        """Break the symmetry of ranks: a stage uses a rank only if an earlier stage uses the rank before it."""
        for stage, on in enumerate(self.on):
            for rank, here in enumerate(on[1:], 1):
                self.model.add_bool_or(here.negated(), *(earlier[rank - 1] for earlier in self.on[:stage]))

    def _rank(self, rank: int) -> None:
        """Constrain a rank to one pass at a time within its memory."""
        slots = [
            self.model.new_optional_fixed_size_interval_var(
                begin, self.graph.seconds[code], self.on[code % self.stages][rank], ""
            )
            for code, begins in enumerate(self.starts)
            for begin in begins
        ]
        self.model.add_no_overlap(slots)
        if self.task.memory is None:
            return
        unit = max(1, self.task.memory // FINEST)
        held, taken = list[Any](), list[int]()
        for stage, cost in enumerate(self.graph.costs):
            here = self.on[stage][rank]
            if cost.state // unit:
                held.append(self.model.new_optional_fixed_size_interval_var(0, self.horizon, here, ""))
                taken.append(cost.state // unit)
            for m, begin in enumerate(self.starts[stage]):
                for kind, bytes_ in ((1, cost.kept - cost.left), (2, cost.left)):
                    if bytes_ // unit:
                        length = self.model.new_int_var(0, self.horizon, "")
                        end = self._end(kind * self.stages + stage, m)
                        held.append(self.model.new_optional_interval_var(begin, length, end, here, ""))
                        taken.append(bytes_ // unit)
        self.model.add_cumulative(held, taken, -(-self.task.memory // unit))

    def least(self, seconds: float, seed: int) -> Proof:
        """Search for so long."""
        solver = self.cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.0, seconds)
        solver.parameters.num_workers, solver.parameters.random_seed = WORKERS, seed
        status, cp_model = solver.solve(self.model), self.cp_model
        if status == cp_model.INFEASIBLE:
            return Proof(None, 0)
        # an interrupt ends the solver, which then returns as if its time were over
        interrupted = status != cp_model.OPTIMAL and solver.wall_time < ENDED * seconds
        bound = round(solver.best_objective_bound) if seconds > 0 else 0
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Proof(None, bound, interrupted)
        placement = tuple(next(rank for rank, here in enumerate(on) if solver.value(here)) for on in self.on)
        starts = [[solver.value(begin) for begin in begins] for begins in self.starts]
        return Proof(self._answer(placement, starts), bound, interrupted)

    def _answer(self, placement: tuple[int, ...], starts: list[list[int]]) -> RanksAndLists | None:
        """Return lists in the order of their starts; None if passes without time leave no valid order."""
        passes: list[list[tuple[int, int, int]]] = [[] for _ in range(self.task.ranks)]
        for code, begins in enumerate(starts):
            for begin in begins:
                passes[placement[code % self.stages]].append((begin, begin + self.graph.seconds[code], code))
        orders = [[code for _, _, code in sorted(of_rank)] for of_rank in passes]
        answer = RanksAndLists(self.task, self.groups, placement, orders)
        return None if answer.problems() else answer
