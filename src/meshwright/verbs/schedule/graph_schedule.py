"""A simulated schedule of a graph with branches: its figures, a file that can be read again, a picture.

Behind the lists, a line for each rank, the file says which operators each stage has:

    0F0,1F0,1I0,0I0,0W0,1W0
    # stage 0: ["image-0", "image-1"]
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from meshwright.errors import InfeasibleError, InputError, Problem
from meshwright.program.pipeline_messages.branch_deadlock_check import check_branch_messages
from meshwright.schedules.action import COMPUTE_KINDS, ActionLists
from meshwright.schedules.bubble_metrics import messages_of
from meshwright.schedules.custom.check_lists import check_passes, first_of
from meshwright.schedules.custom.csv_file import format_csv, lines_of_file, lists_from_csv
from meshwright.schedules.solve.initial_schedules import split_orders
from meshwright.search.operator_graph import Task
from meshwright.search.operator_graph.graph import Groups, in_order
from meshwright.search.operator_graph.lower_bound import Bound, lower_bound
from meshwright.search.operator_graph.problem import RanksAndLists, levels
from meshwright.units import GIB, format_bytes
from meshwright.verbs.schedule.graph_file import Branches

_STAGE = re.compile(r"# stage ([0-9]{1,6}): (\[.*\])")
STAGES = '# stage 0: ["operator", "operator"], one line for each stage behind the lists'


@dataclass(frozen=True, slots=True)
class GraphLists:
    """Lists with the graph that they are for, and what no lists for it are below."""

    graph: str
    branches: Branches
    answer: RanksAndLists
    bound: Bound

    def summary(self) -> dict[str, Any]:
        """Return the graph, the task, and the length of the step."""
        task, step = self.answer.task, self.answer.step
        return {
            "graph": self.graph,
            "operators": len(self.branches.names),
            "ranks": task.ranks,
            "micro_batches": task.micro_batches,
            "memory_bytes": task.memory,
            "step_s": self.seconds(step),
            "lower_bound_s": self.seconds(self.bound.step),
            "bound_reason": self.bound.reason,
            "gap": max(0.0, step / self.bound.step - 1),
            "proven": step <= self.bound.step,
        }

    def in_full(self) -> dict[str, Any]:
        """Return ranks and stages in full; ``actions`` have ``start_s``, ``end_s`` and ``held_bytes`` (after)."""
        return self._of_ranks() | {"stages": list(self._stages())} | self._lists()

    def _of_ranks(self) -> dict[str, Any]:
        answer = self.answer
        work = [0] * answer.task.ranks
        for rank, cost in zip(answer.placement, answer.graph.costs, strict=True):
            work[rank] += answer.task.micro_batches * cost.work
        return {
            "busy": [ticks / answer.step for ticks in work],
            "peak_bytes": list(answer.peaks),
            "messages": list(messages_of(answer.lists, answer.graph.ways)),
        }

    def _stages(self) -> Iterator[dict[str, Any]]:
        answer = self.answer
        for stage, (group, rank, cost) in enumerate(
            zip(answer.groups, answer.placement, answer.graph.costs, strict=True)
        ):
            yield {
                "stage": stage,
                "rank": rank,
                "operators": [self.branches.names[operator] for operator in group],
                "needs": list(answer.graph.stages.before[stage]),
                "forward_s": self.seconds(cost.forward),
                "input_s": self.seconds(cost.input),
                "weight_s": self.seconds(cost.weight),
                "kept_bytes": cost.kept,
                "state_bytes": cost.state,
            }

    def _lists(self) -> dict[str, Any]:
        answer = self.answer
        played = answer.timeline.divided(self.branches.ticks_per_s)
        return {
            "actions": [[str(action) for action in actions] for actions in answer.lists],
            "start_s": [list(row) for row in played.start],
            "end_s": [list(row) for row in played.end],
            "held_bytes": self._held(),
        }

    def _held(self) -> list[list[int]]:
        answer = self.answer
        return [
            [state + level for level in levels(actions, answer.graph.costs)]
            for actions, state in zip(answer.lists, answer.states, strict=True)
        ]

    def seconds(self, ticks: int) -> float:
        """Ticks as seconds."""
        return ticks / self.branches.ticks_per_s

    def csv(self) -> str:
        """Return the lists, one row for each rank, and the operators of the stages."""
        names = self.branches.names
        stages = (json.dumps([names[o] for o in group], ensure_ascii=False) for group in self.answer.groups)
        return format_csv(self.answer.lists) + "".join(f"# stage {s}: {of}\n" for s, of in enumerate(stages))

    def svg(self) -> str:
        """Return a picture of the timeline."""
        from meshwright.present.schedule_picture import Panel, schedules_svg

        answer, task = self.answer, self.answer.task
        panel = Panel(
            lists=answer.lists,
            timeline=answer.timeline.divided(self.branches.ticks_per_s),
            ways=answer.graph.ways,
            held=[[bytes_ / GIB for bytes_ in row] for row in self._held()],
            held_words="held, with states, in GiB",
        )
        title = f"{len(answer.groups)} stages with branches: {task.ranks} ranks, {task.micro_batches} micro-batches"
        return schedules_svg([panel], title=title)


def graph_lists_of_file(path: str, graph: str, branches: Branches, memory: int | None) -> GraphLists:
    """Read lists of a file for their graph. Raise InputError with every problem."""
    lines = lines_of_file(path)
    groups, lists = _groups(lines, path, branches), lists_from_csv("\n".join(lines), path)
    problems = [
        Problem(f"lists.{rank}", str(action), "is no pass of a micro-batch", "F, I and W, or B, alone")
        for rank, actions in enumerate(lists)
        for action in actions
        if action.kind not in COMPUTE_KINDS or not 0 <= (action.stage or 0) < len(groups)
    ]
    if problems:
        raise InputError(problems)
    homes = {action.stage or 0: rank for rank, actions in enumerate(lists) for action in actions}
    missing = sorted({*range(len(groups))} - homes.keys())
    if missing:
        raise InputError(Problem("lists", f"stage {missing[0]}", "has no pass", f"add {missing[0]}F0"))
    count = len({action.micro_batch for actions in lists for action in actions})
    task = Task(branches.graph, len(lists), count, memory)
    placement = tuple(homes[stage] for stage in range(len(groups)))
    answer = RanksAndLists(task, groups, placement, split_orders(lists, len(groups)))
    problems = check_passes(lists, answer.shape) or first_of(_out_of_turn(lists))
    problems = problems or check_branch_messages(answer.lists, placement, answer.graph.ways)
    if problems:
        raise InputError(problems)
    _check_memory(answer)
    return GraphLists(graph, branches, answer, lower_bound(task))


def _out_of_turn(lists: ActionLists) -> Iterator[Problem]:
    """Micro-batches go through every stage in turn."""
    for rank, actions in enumerate(lists):
        seen = Counter[tuple[str, int | None]]()
        for action in actions:
            of = action.kind, action.stage
            if action.micro_batch != seen[of]:
                rule = f"comes where micro-batch {seen[of]} of this stage is to come"
                hint = "number micro-batches so that they go through every stage in turn"
                yield Problem(f"lists.{rank}", str(action), rule, hint)
            seen[of] += 1


def _check_memory(answer: RanksAndLists) -> None:
    """Raise InfeasibleError if a rank holds more than the limit."""
    if answer.fits:
        return
    over = [f"rank {rank} holds {format_bytes(peak)}" for rank, peak in enumerate(answer.peaks)]
    most = max(answer.peaks) / GIB
    message = f"The lists hold more than the memory of {format_bytes(answer.task.memory or 0)}."
    raise InfeasibleError(message, over, f"--memory {ceil(100 * most) / 100:g}")


def _groups(lines: tuple[str, ...], path: str, branches: Branches) -> Groups:
    """Return the operators of every stage."""
    numbers = {name: number for number, name in enumerate(branches.names)}
    found, problems = dict[int, tuple[int, ...]](), list[Problem]()
    for line in lines:
        match = _STAGE.fullmatch(line.strip())
        if match:
            names = _names(match[2])
            unknown = [name for name in names if name not in numbers]
            problems += [Problem(path, name, "is no operator of the graph", STAGES) for name in unknown]
            found[int(match[1])] = tuple(numbers[name] for name in names if name in numbers)
    if not problems:
        problems += _cover(found, path, branches)
    if problems:
        raise InputError(problems)
    return tuple(found[stage] for stage in range(len(found)))


def _names(text: str) -> list[str]:
    try:
        return [str(name) for name in json.loads(text)]
    except ValueError:
        return [text]


def _cover(found: dict[int, tuple[int, ...]], path: str, branches: Branches) -> Iterator[Problem]:
    """Yield problems of stages: gaps, operators in none or several, or a stage before one that it needs."""
    if sorted(found) != [*range(len(found))] or not found:
        yield Problem(path, len(found), "does not say the operators of each stage", STAGES)
        return
    each = sorted(operator for group in found.values() for operator in group)
    wrong = {o for o in range(len(branches.names)) if each.count(o) != 1}
    for operator in sorted(wrong):
        rule = f"is in {each.count(operator)} stages"
        yield Problem(path, branches.names[operator], rule, "each operator in one stage")
    groups = tuple(found[stage] for stage in range(len(found)))
    home = {operator: stage for stage, group in enumerate(groups) for operator in group}
    if not wrong and (
        in_order(branches.graph, groups) is None
        or any(home[source] > home[target] for source, target in branches.graph.edges)
    ):
        rule = "has stages that need each other, or one before what it needs"
        yield Problem(path, None, rule, "number stages behind those that they need")
