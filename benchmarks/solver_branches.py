"""Graphs with branches beside the best chain and beside the same search without branches: a part of ``solver.py``."""

from collections.abc import Iterator
from pathlib import Path

from accuracy import table
from schedule_page.section import Section, Target

from meshwright.schedules.solve import Effort
from meshwright.search.operator_graph import Cost, Graph, Solution, Task, solve
from meshwright.search.operator_graph.best_chain import chain_graph
from meshwright.units import GIB
from meshwright.verbs.schedule.graph_file import Branches, branches_of_file

EXAMPLES = Path(__file__).parents[1] / "examples" / "branches"
RANKS, MICRO_BATCHES = 4, (2, 4, 8, 16)
LIMITS_GIB = {"vision-text": (14, 10), "shared-experts": (24, 22)}
"""Of the examples, with ``LIMITED`` micro-batches."""
LIMITED = 8
EFFORT = Effort(seconds=10)


def branches() -> Section:
    """Proofs for small graphs, then both examples."""
    small, proven = _small()
    rows, found = [], list[tuple[Solution, Solution]]()
    for name in LIMITS_GIB:
        of_file = branches_of_file(str(EXAMPLES / f"{name}.yaml"))
        for micro_batches, limit in _sizes(name):
            memory = None if limit is None else limit * GIB
            task = Task(of_file.graph, RANKS, micro_batches, memory)
            answer = solve(task, EFFORT)
            row = _without_branches(task, answer)
            found.append((answer, row))
            rows.append([f"`{name}`", micro_batches, limit or "–", *_cells(of_file, answer, row)])
    text = f"""\
The step, from the first start of all to the last end of all, of operators with branches: `schedule auto --graph`.

Small graphs: two branches of n operators that meet in one, two ranks, F = I = W = 1, messages take 1; as *step/best
chain*, by constraint programming; proven for {proven[0]} of {proven[1]}. Tests compare such with brute force.

{table(["n", *(f"M = {m}" for m in (1, 2, 3, 4))], small)}

The examples on {RANKS} ranks, times computed from sizes as their files say. *Chain*: operators in a row, an exact cut,
the shortest schedule of the table. *In a row*: the same search, with each operator needing the one before it in that
row, so that what is gained beyond it is due to branches alone. {EFFORT.seconds:g} s of search for each.

{table(_HEAD, rows)}"""
    chains = [(answer.answer.step, answer.chain.step) for answer, _ in found if answer.chain]
    longer = sum(step > chain for step, chain in chains)
    first = max(1 - answer.answer.step / row.answer.step for answer, row in found)
    return Section(
        "Branches",
        text,
        (
            Target(
                "small graphs with branches: proven", str(proven[1]), str(proven[0]), proven[0] == proven[1]
            ),
            Target(
                "examples: steps longer than the best chain's", "0", f"{longer} of {len(chains)}", longer == 0
            ),
            Target("examples: most that branches alone gain", "> 0", f"{first:.1%}", first > 0),
        ),
    )


_HEAD = [
    *(
        "graph",
        "M",
        "GiB",
        "chain, ms",
        "schedule",
        "in a row, ms",
        "branches, ms",
        "beside chain",
        "beside row",
    ),
    *("gap", "found by"),
]


def _sizes(name: str) -> Iterator[tuple[int, int | None]]:
    yield from ((micro_batches, None) for micro_batches in MICRO_BATCHES)
    yield from ((LIMITED, limit) for limit in LIMITS_GIB[name])


def _without_branches(task: Task, answer: Solution) -> Solution:
    """The operators in the row of the best chain, searched in the same way."""
    assert answer.chain is not None, "an example without a chain"
    row = tuple((operator,) for group in answer.chain.answer.groups for operator in group)
    return solve(Task(chain_graph(task.graph, row), task.ranks, task.micro_batches, task.memory), EFFORT)


def _cells(of_file: Branches, answer: Solution, row: Solution) -> Iterator[object]:
    assert answer.chain is not None, "an example without a chain"
    steps = answer.chain.step, row.answer.step, answer.answer.step
    chain, in_a_row, step = (f"{1e3 * ticks / of_file.ticks_per_s:.3f}" for ticks in steps)
    yield from (chain, answer.chain.schedule, in_a_row, step)
    yield from (f"{steps[2] / other - 1:+.1%}" for other in steps[:2])
    yield "proven shortest" if answer.proven else f"{answer.gap:.1%}"
    yield answer.found_by


def _small() -> tuple[list[list[object]], tuple[int, int]]:
    rows, proven, count = list[list[object]](), 0, 0
    for length in (1, 2, 3):
        cells = []
        for micro_batches in (1, 2, 3, 4):
            found = solve(Task(_two_branches(length), 2, micro_batches), Effort(seconds=30, method="exact"))
            assert found.chain is not None, "small graphs have chains"
            cells.append(f"{found.answer.step}/{found.chain.step}" + ("" if found.proven else "?"))
            proven, count = proven + found.proven, count + 1
        rows.append([length, *cells])
    return rows, (proven, count)


def _two_branches(length: int) -> Graph:
    """Two branches of so many operators, and one operator that needs both."""
    last = 2 * length
    inner = [(a, a + 1) for start in (0, length) for a in range(start, start + length - 1)]
    edges = [*inner, (length - 1, last), (last - 1, last)]
    return Graph((Cost(1, 1, 1),) * (last + 1), dict.fromkeys(edges, 1))
