"""``schedule auto --graph``: which rank has which operators of a graph with branches, and its lists.

The lists' stages are groups of operators. They pass the checks of all lists, with branches in place of a chain, and
their messages can not deadlock under NCCL's rules. They are described, solved and simulated: the runtime runs chains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any

from meshwright.errors import InputError, Problem, attempted
from meshwright.program.branch_messages import check_branch_messages
from meshwright.schedule.figures import messages_of
from meshwright.schedule.table import csv_of
from meshwright.search.branches import Solution, Task, solve
from meshwright.search.branches.task import levels
from meshwright.units import GIB
from meshwright.verbs.branch_files import Branches, branches_of_file
from meshwright.verbs.schedule_auto import Sought, search_problems
from meshwright.verbs.schedule_question import MAX_MICRO_BATCHES, MAX_RANKS

MAX_PASSES = 60_000
"""F, I and W of all operators and micro-batches."""
MOST_GIB = 2**20
ORIGIN = {
    "step_s": "played; from the first start of all to the last end of all",
    "lower_bound_s": "computed or proven (bound_reason); no lists within the memory have a shorter step",
    "gap": "step_s / lower_bound_s - 1",
    "chain_step_s": "played; the shortest chain: operators in a row, an exact cut, and the best schedule of the table",
    "gain": "1 - step_s / chain_step_s",
    "busy": "work of a rank / step_s",
    "peak_bytes": "counted; states, what F keeps until I ends, and what I leaves of it until W ends",
    "messages": "counted; what each rank sends: one from a pass to every other rank that needs its result",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOfGraph:
    """A file with operators, ranks, micro-batches, and GiB that a rank may hold; None where they were not given."""

    graph: str
    ranks: int | None = None
    micro_batches: int | None = None
    memory_gib: float | None = None

    @property
    def memory(self) -> int | None:
        """Bytes that a rank may hold."""
        return None if self.memory_gib is None else int(self.memory_gib * GIB)


@dataclass(frozen=True, slots=True)
class SolvedGraph:
    """An answer, and what was asked."""

    asked: AskedOfGraph
    branches: Branches
    solution: Solution
    search_time_s: float

    def to_json(self) -> dict[str, Any]:
        """The public form; ``start_s``, ``end_s`` and ``held_bytes`` (after it) go with ``actions``."""
        return (
            self._summary()
            | self._of_ranks()
            | {"stages": list(self._stages()), "origin": ORIGIN}
            | self._lists()
        )

    def _summary(self) -> dict[str, Any]:
        of, task = self.solution, self.solution.answer.task
        chain = of.chain
        return {
            "schedule": "auto",
            "graph": self.asked.graph,
            "operators": len(self.branches.names),
            "ranks": task.ranks,
            "micro_batches": task.micro_batches,
            "memory_bytes": task.memory,
            "step_s": self._seconds(of.answer.step),
            "lower_bound_s": self._seconds(of.bound.step),
            "bound_reason": of.bound.reason,
            "gap": of.gap,
            "proven": of.proven,
            "chain_step_s": self._seconds(chain.step) if chain else None,
            "chain_schedule": chain.schedule if chain else None,
            "gain": 1 - of.answer.step / chain.step if chain else None,
            "found_by": of.found_by,
            "coarse_stages": of.coarse,
            "search_steps": of.steps,
            "search_time_s": self.search_time_s,
            "interrupted": of.interrupted,
        }

    def _of_ranks(self) -> dict[str, Any]:
        answer = self.solution.answer
        work = [0] * answer.task.ranks
        for rank, cost in zip(answer.placement, answer.graph.costs, strict=True):
            work[rank] += answer.task.micro_batches * cost.work
        return {
            "busy": [ticks / answer.step for ticks in work],
            "peak_bytes": list(answer.peaks),
            "messages": list(messages_of(answer.lists, answer.graph.ways)),
        }

    def _stages(self) -> Iterator[dict[str, Any]]:
        answer = self.solution.answer
        for stage, (group, rank, cost) in enumerate(
            zip(answer.groups, answer.placement, answer.graph.costs, strict=True)
        ):
            yield {
                "stage": stage,
                "rank": rank,
                "operators": [self.branches.names[operator] for operator in group],
                "needs": list(answer.graph.stages.before[stage]),
                "forward_s": self._seconds(cost.forward),
                "input_s": self._seconds(cost.input),
                "weight_s": self._seconds(cost.weight),
                "kept_bytes": cost.kept,
                "state_bytes": cost.state,
            }

    def _lists(self) -> dict[str, Any]:
        answer = self.solution.answer
        played = answer.timeline.divided(self.branches.ticks_per_s)
        return {
            "actions": [[str(action) for action in actions] for actions in answer.lists],
            "start_s": [list(row) for row in played.start],
            "end_s": [list(row) for row in played.end],
            "held_bytes": self._held(),
        }

    def _held(self) -> list[list[int]]:
        answer = self.solution.answer
        return [
            [state + level for level in levels(actions, answer.graph.costs)]
            for actions, state in zip(answer.lists, answer.states, strict=True)
        ]

    def _seconds(self, ticks: int) -> float:
        return ticks / self.branches.ticks_per_s

    def csv(self) -> str:
        """The lists, one row for each rank."""
        return csv_of(self.solution.answer.lists)

    def svg(self) -> str:
        """A picture of the timeline."""
        from meshwright.schedule.picture import Panel, svg_of_many

        answer, task = self.solution.answer, self.solution.answer.task
        panel = Panel(
            lists=answer.lists,
            timeline=answer.timeline.divided(self.branches.ticks_per_s),
            ways=answer.graph.ways,
            held=[[bytes_ / GIB for bytes_ in row] for row in self._held()],
            held_words="held, with states, in GiB",
        )
        title = f"{len(answer.groups)} stages with branches: {task.ranks} ranks, {task.micro_batches} micro-batches"
        return svg_of_many([panel], title=title)


def solved_graph(asked: AskedOfGraph, sought: Sought) -> SolvedGraph:
    """Search. Raises InputError with all problems, InfeasibleError where nothing keeps to the memory."""
    problems = [*_problems(asked), *search_problems(sought)]
    branches = attempted(lambda: branches_of_file(asked.graph), problems)
    if branches is not None:
        problems += _size_problems(asked, len(branches.names))
    if problems or branches is None:
        raise InputError(problems)
    task = Task(branches.graph, asked.ranks or 0, asked.micro_batches or 0, asked.memory)
    begun = monotonic()
    found = solve(task, sought.effort)
    took = monotonic() - begun
    answer = found.answer
    assert not answer.problems(), "lists that are not legal"
    assert not check_branch_messages(answer.lists, answer.placement, answer.graph.ways), "messages that wait"
    return SolvedGraph(asked, branches, found, took)


def _problems(asked: AskedOfGraph) -> Iterator[Problem]:
    numbers = {
        "ranks": (asked.ranks, MAX_RANKS, 4),
        "micro-batches": (asked.micro_batches, MAX_MICRO_BATCHES, 8),
    }
    for name, (value, most, example) in numbers.items():
        if value is None:
            yield Problem(name, None, "is needed to make the lists", f"--{name} {example}")
        elif not 1 <= value <= most:
            yield Problem(name, value, f"must be from 1 to {most}", f"--{name} {min(most, max(1, value))}")
    memory = asked.memory_gib
    if memory is not None and not (isfinite(memory) and 0 < memory <= MOST_GIB):
        yield Problem("memory", memory, f"must be above 0 and at most {MOST_GIB} GiB", "--memory 80")


def _size_problems(asked: AskedOfGraph, operators: int) -> Iterator[Problem]:
    ranks, micro_batches = asked.ranks or 1, asked.micro_batches or 1
    if operators < ranks <= MAX_RANKS:
        yield Problem("ranks", ranks, f"{ranks} ranks > {operators} operators", f"--ranks {operators}")
    passes = 3 * operators * micro_batches
    if passes > MAX_PASSES and micro_batches <= MAX_MICRO_BATCHES:
        rule = f"3·operators·micro-batches = {passes:,} passes > {MAX_PASSES:,}, too many to search"
        most = max(1, MAX_PASSES // (3 * operators))
        yield Problem("micro-batches", micro_batches, rule, f"--micro-batches {most}")
