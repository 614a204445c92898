"""``schedule auto --graph``: assign the operators of a graph with branches to ranks, and order their passes.

The lists' stages are groups of operators. They pass the checks of all lists, with branches in place of a chain, and
their messages can not deadlock under NCCL's rules. They are described, solved and simulated: the runtime runs chains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any

from meshwright.errors import InputError, Problem, attempted
from meshwright.program.pipeline_messages.branch_deadlock_check import check_branch_messages
from meshwright.search.operator_graph import Solution, Task, solve
from meshwright.units import GIB
from meshwright.verbs.schedule.graph_file import Branches, branches_of_file
from meshwright.verbs.schedule.graph_schedule import GraphLists, graph_lists_of_file
from meshwright.verbs.schedule.schedule_request import MAX_MICRO_BATCHES, MAX_RANKS
from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions, search_problems

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
class GraphScheduleRequest:
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
class PlayedGraph:
    """Lists of a file."""

    name: str
    lists: GraphLists

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        keys = ("step_s", "lower_bound_s", "gap", "busy", "peak_bytes", "messages")
        origin = {"origin": {key: ORIGIN[key] for key in keys}}
        return {"schedule": self.name} | self.lists.summary() | self.lists.in_full() | origin

    def csv(self) -> str:
        """Write the lists as CSV, one row for each rank, and the operators of the stages."""
        return self.lists.csv()

    def svg(self) -> str:
        """Draw the timeline."""
        return self.lists.svg()


@dataclass(frozen=True, slots=True)
class SolvedGraph:
    """An answer, and what was asked."""

    request: GraphScheduleRequest
    branches: Branches
    solution: Solution
    search_time_s: float

    @property
    def lists(self) -> GraphLists:
        """The lists with their figures."""
        return GraphLists(self.request.graph, self.branches, self.solution.answer, self.solution.bound)

    def to_json(self) -> dict[str, Any]:
        """Return the public form; ``start_s``, ``end_s`` and ``held_bytes`` (afterwards) go with ``actions``."""
        lists = self.lists
        head = {"schedule": "auto"} | lists.summary() | self._search()
        in_full = lists.in_full()
        return head | in_full | {"origin": ORIGIN}

    def _search(self) -> dict[str, Any]:
        of, chain = self.solution, self.solution.chain
        return {
            "chain_step_s": self.lists.seconds(chain.step) if chain else None,
            "chain_schedule": chain.schedule if chain else None,
            "gain": 1 - of.answer.step / chain.step if chain else None,
            "found_by": of.found_by,
            "coarse_stages": of.coarse,
            "search_steps": of.steps,
            "search_time_s": self.search_time_s,
            "interrupted": of.interrupted,
        }

    def csv(self) -> str:
        """Write the lists as CSV, one row for each rank, and the operators of the stages."""
        return self.lists.csv()

    def svg(self) -> str:
        """Draw the timeline."""
        return self.lists.svg()


def played_graph(name: str, request: GraphScheduleRequest) -> PlayedGraph:
    """Simulate the lists of a file for a graph. Raise InputError for faults, InfeasibleError beyond the memory."""
    problems = [*_memory_problems(request)]
    branches = attempted(lambda: branches_of_file(request.graph), problems)
    if problems or branches is None:
        raise InputError(problems)
    lists = graph_lists_of_file(name, request.graph, branches, request.memory)
    task = lists.answer.task
    numbers = {
        "ranks": (request.ranks, task.ranks),
        "micro-batches": (request.micro_batches, task.micro_batches),
    }
    problems = [
        Problem(option, value, f"the file has {of_file}", f"--{option} {of_file}, or leave it out")
        for option, (value, of_file) in numbers.items()
        if value not in (None, of_file)
    ]
    if problems:
        raise InputError(problems)
    return PlayedGraph(name, lists)


def solved_graph(request: GraphScheduleRequest, search: ScheduleSearchOptions) -> SolvedGraph:
    """Search. Raises InputError with all problems, InfeasibleError where nothing keeps to the memory."""
    problems = [*_problems(request), *search_problems(search)]
    branches = attempted(lambda: branches_of_file(request.graph), problems)
    if branches is not None:
        problems += _size_problems(request, len(branches.names))
    if problems or branches is None:
        raise InputError(problems)
    task = Task(branches.graph, request.ranks or 0, request.micro_batches or 0, request.memory)
    begun = monotonic()
    found = solve(task, search.effort)
    took = monotonic() - begun
    answer = found.answer
    assert not answer.problems(), "lists that are not legal"
    assert not check_branch_messages(answer.lists, answer.placement, answer.graph.ways), "messages that wait"
    return SolvedGraph(request, branches, found, took)


def _problems(request: GraphScheduleRequest) -> Iterator[Problem]:
    numbers = {
        "ranks": (request.ranks, MAX_RANKS, 4),
        "micro-batches": (request.micro_batches, MAX_MICRO_BATCHES, 8),
    }
    for name, (value, most, example) in numbers.items():
        if value is None:
            yield Problem(name, None, "is needed to make the lists", f"--{name} {example}")
        elif not 1 <= value <= most:
            yield Problem(name, value, f"must be from 1 to {most}", f"--{name} {min(most, max(1, value))}")
    yield from _memory_problems(request)


def _memory_problems(request: GraphScheduleRequest) -> Iterator[Problem]:
    memory = request.memory_gib
    if memory is not None and not (isfinite(memory) and 0 < memory <= MOST_GIB):
        yield Problem("memory", memory, f"must be above 0 and at most {MOST_GIB} GiB", "--memory 80")


def _size_problems(request: GraphScheduleRequest, operators: int) -> Iterator[Problem]:
    ranks, micro_batches = request.ranks or 1, request.micro_batches or 1
    if operators < ranks <= MAX_RANKS:
        yield Problem("ranks", ranks, f"{ranks} ranks > {operators} operators", f"--ranks {operators}")
    passes = 3 * operators * micro_batches
    if passes > MAX_PASSES and micro_batches <= MAX_MICRO_BATCHES:
        rule = f"3·operators·micro-batches = {passes:,} passes > {MAX_PASSES:,}, too many to search"
        most = max(1, MAX_PASSES // (3 * operators))
        yield Problem("micro-batches", micro_batches, rule, f"--micro-batches {most}")
