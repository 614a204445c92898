"""``meshwright schedule``: play one pipeline schedule, compare several, or list all."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from meshwright.cli.options import schedule_options as options
from meshwright.cli.options.shared_options import AsJson, Debug
from meshwright.cli.terminal.output import (
    check_writable,
    errors_as_messages,
    print_json,
    print_remarks,
    write_all,
)
from meshwright.errors import InputError, Problem

if TYPE_CHECKING:
    from meshwright.verbs.schedule.named_schedules import Scheduled
    from meshwright.verbs.schedule.solve_chain import Solved
    from meshwright.verbs.schedule.solve_graph import PlayedGraph, SolvedGraph

ALL, SEVERAL, SEARCH = "list", "compare", "auto"
OF_CHAINS = ("chunks", "times", "stage_times", "memory_limit", "unit", "placement", "from")
"""Options that do not apply to graphs."""
LONG = ("actions", "start", "end", "held", "start_s", "end_s", "held_bytes")
"""Entries with a value for every action, printed on one line per rank."""


def schedule(
    names: options.Names,
    stages: options.Stages = None,
    micro_batches: options.MicroBatches = None,
    chunks: options.Chunks = None,
    times: options.Times = None,
    stage_times: options.StageTimes = None,
    memory_limit: options.MemoryLimit = None,
    unit: options.Unit = None,
    placement: options.Placement = None,
    time_budget: options.TimeBudget = None,
    method: options.Method = None,
    seed: options.Seed = None,
    from_: options.From = None,
    graph: options.Graph = None,
    memory: options.Memory = None,
    csv: options.Csv = None,
    svg: options.Svg = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Simulate a pipeline schedule: its length, its bubble, and the memory of every rank.

    `auto` searches for the shortest lists within the memory limit, 1F1B's memory if not given, and says how far from
    the shortest possible they are; with `--graph` also which rank has which operators. Exits with 1 when a rank holds
    more than the memory limit.
    """
    given = {
        "stages": stages,
        "micro_batches": micro_batches,
        "chunks": chunks,
        "times": times,
        "stage_times": stage_times,
        "memory_limit": memory_limit,
        "unit": unit,
    }
    search = {"placement": placement, "time_budget": time_budget, "method": method, "seed": seed}
    branches = {"graph": graph, "memory": memory}
    files = {name: path for name, path in (("csv", csv), ("svg", svg)) if path}
    with errors_as_messages(as_json, debug):
        for option, path in files.items():
            check_writable(path, option)
        refuse_unused(names, given, search, branches, from_, files)
        if names[0] == ALL:
            _list(as_json)
        elif names[0] == SEVERAL:
            _compare(names[1:], given, svg, as_json)
        elif graph is not None:
            _with_branches(names[0], branches, given, search, files, as_json)
        else:
            _one(names[0], given, search, from_, files, as_json)


def refuse_unused(
    names: Sequence[str],
    given: Mapping[str, object],
    search: Mapping[str, object],
    branches: Mapping[str, object],
    plan: str | None,
    files: Mapping[str, Path],
) -> None:
    """Raise InputError for options that this form of the verb does not read."""
    graph = branches["graph"] is not None
    if names[0] != SEARCH:
        others = {} if graph and names[0].endswith(".csv") else branches
        _refuse((), {**search, **others, "from": plan}, f"is for `meshwright schedule {SEARCH}`")
    if names[0] == ALL:
        _refuse(names, {**given, **files})
    elif names[0] == SEVERAL:
        _refuse((), {"csv": files.get("csv")})
    elif graph:
        unread = {
            name: value for name, value in {**given, **search, "from": plan}.items() if name in OF_CHAINS
        }
        _refuse(names, unread, "is not for a graph")
    else:
        _refuse(names, {"memory": branches["memory"]}, "is for a graph: --graph")


def _refuse(
    names: Sequence[str], given: Mapping[str, object], rule: str = "is for a single schedule"
) -> None:
    """Refuse options that this form of the verb does not read."""
    several = f"meshwright schedule {SEVERAL} {' '.join(name for name in names if name != ALL)}"
    problems = [Problem("NAME", name, "is one name too many", several) for name in names[1:]]
    problems += [
        Problem(f"--{name.replace('_', '-')}", str(value), rule, "leave it out")
        for name, value in given.items()
        if value is not None
    ]
    if problems:
        raise InputError(problems)


def _list(as_json: bool) -> None:
    from meshwright import api

    data = api.schedules()
    if as_json:
        print_json(data)
    else:
        from meshwright.present.schedule_tables import render_schedules

        render_schedules(data)


def _compare(names: Sequence[str], given: Mapping[str, Any], svg: Path | None, as_json: bool) -> None:
    from meshwright import api
    from meshwright.verbs.schedule.named_schedules import forewarned
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest

    request = ScheduleRequest(**given)
    print_remarks(forewarned(names, request))
    found = api.compare_schedules(names, request)
    if svg:
        write_all({svg: found.svg()})
    if as_json:
        print_json(found.to_json())
    else:
        from meshwright.present.schedule_tables import render_compared

        render_compared(found.to_json(), str(svg) if svg else None)


def _one(
    name: str,
    given: Mapping[str, Any],
    search: Mapping[str, Any],
    plan: str | None,
    files: Mapping[str, Path],
    as_json: bool,
) -> None:
    from meshwright.present.schedule_tables import render_schedule

    found = _searched(given, search, plan) if name == SEARCH else _played(name, given)
    _print_result(found, render_schedule, files, as_json)


def _with_branches(
    name: str,
    branches: Mapping[str, Any],
    given: Mapping[str, Any],
    search: Mapping[str, Any],
    files: Mapping[str, Path],
    as_json: bool,
) -> None:
    from meshwright import api
    from meshwright.present.graph_schedule import render_branches
    from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions
    from meshwright.verbs.schedule.solve_graph import GraphScheduleRequest

    request = GraphScheduleRequest(
        graph=branches["graph"],
        ranks=given["stages"],
        micro_batches=given["micro_batches"],
        memory_gib=branches["memory"],
    )
    found = (
        api.solve_graph(request, ScheduleSearchOptions(**search))
        if name == SEARCH
        else api.play_graph(name, request)
    )
    _print_result(found, render_branches, files, as_json)


def _print_result(
    found: "Scheduled | Solved | SolvedGraph | PlayedGraph",
    render: Callable[[dict[str, Any], Sequence[str]], None],
    files: Mapping[str, Path],
    as_json: bool,
) -> None:
    """Write the files, and print the result."""
    write_all({path: found.csv() if option == "csv" else found.svg() for option, path in files.items()})
    if as_json:
        _print_lines(found.to_json())
    else:
        render(found.to_json(), [str(path) for path in files.values()])


def _played(name: str, given: Mapping[str, Any]) -> "Scheduled":
    from meshwright import api
    from meshwright.verbs.schedule.named_schedules import forewarned
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest

    request = ScheduleRequest(**given)
    print_remarks(forewarned((name,), request))
    return api.schedule(name, request)


def _searched(given: Mapping[str, Any], search: Mapping[str, Any], plan: str | None) -> "Solved":
    from meshwright import api
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest
    from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions

    if plan is not None:
        return api.solve_plan(plan, ScheduleRequest(**given), ScheduleSearchOptions(**search))
    return api.solve_schedule(ScheduleRequest(**given), ScheduleSearchOptions(**search))


def _print_lines(data: Mapping[str, Any]) -> None:
    """Print one JSON document, with one line per rank for entries with a value for every action."""
    parts = []
    for name, value in data.items():
        text = json.dumps(value, allow_nan=False)
        if name in LONG:
            text = "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in value) + "\n]"
        parts.append(f"{json.dumps(name)}: {text}")
    typer.echo("{\n" + ",\n".join(parts) + "\n}")
