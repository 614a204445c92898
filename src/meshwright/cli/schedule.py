"""``meshwright schedule``: play one pipeline schedule, compare several, or list all."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

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
    search_options = {"placement": placement, "time_budget": time_budget, "method": method, "seed": seed}
    branches = {"graph": graph, "memory": memory}
    files = {name: path for name, path in (("csv", csv), ("svg", svg)) if path}
    with errors_as_messages(as_json, debug):
        for option, path in files.items():
            check_writable(path, option)
        refuse_unused(names, given, search_options, branches, from_, files)
        if names[0] not in (ALL, SEARCH) and graph is None:
            _print_forewarnings(names, given)
        data, render = answered(names, given, search_options, branches, from_, files)
        if not as_json:
            render(data)
        elif names[0] in (ALL, SEVERAL):
            print_json(data)
        else:
            _print_lines(data)


def answered(
    names: Sequence[str],
    given: Mapping[str, Any],
    search_options: Mapping[str, Any],
    branches: Mapping[str, Any],
    plan: str | None,
    files: Mapping[str, Path],
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], None]]:
    """Return what is listed, compared, played or searched, and what prints it; write the files."""
    from meshwright import api
    from meshwright.present.graph_schedule import render_branches
    from meshwright.present.schedule_tables import render_compared, render_schedule, render_schedules

    if names[0] == ALL:
        return api.schedules(), render_schedules
    found = _found(names, given, search_options, branches, plan)
    write_all({path: found.csv() if option == "csv" else found.svg() for option, path in files.items()})
    written = [str(path) for path in files.values()]
    if names[0] == SEVERAL:
        return found.to_json(), lambda data: render_compared(data, written[0] if written else None)
    render = render_schedule if branches["graph"] is None else render_branches
    return found.to_json(), lambda data: render(data, written)


def _found(
    names: Sequence[str],
    given: Mapping[str, Any],
    search_options: Mapping[str, Any],
    branches: Mapping[str, Any],
    plan: str | None,
) -> Any:
    from meshwright import api
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest, parse_limits
    from meshwright.verbs.schedule.solve_chain import ScheduleSearchOptions
    from meshwright.verbs.schedule.solve_graph import GraphScheduleRequest

    limits = parse_limits(given["memory_limit"])
    if len(limits) > 1 and names[0] != SEVERAL:
        rule = "are several limits, which are for `meshwright schedule compare`"
        raise InputError(
            Problem("memory-limit", str(given["memory_limit"]), rule, f"--memory-limit {limits[0]:g}")
        )
    asked = dict(given) | {"memory_limit": limits[0] if limits else None}
    name, request, search = names[0], ScheduleRequest(**asked), ScheduleSearchOptions(**search_options)
    if name == SEVERAL:
        return api.compare_schedules(names[1:], request, limits, search)
    if branches["graph"] is not None:
        graph = GraphScheduleRequest(
            graph=branches["graph"],
            ranks=given["stages"],
            micro_batches=given["micro_batches"],
            memory_gib=branches["memory"],
        )
        return api.solve_graph(graph, search) if name == SEARCH else api.play_graph(name, graph)
    if name != SEARCH:
        return api.schedule(name, request)
    return api.solve_schedule(request, search) if plan is None else api.solve_plan(plan, request, search)


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
    if names[0] == SEVERAL and SEARCH in names[1:]:
        _refuse((), {**branches, "from": plan}, f"is for `meshwright schedule {SEARCH}`")
    elif names[0] != SEARCH:
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


def _print_forewarnings(names: Sequence[str], given: Mapping[str, Any]) -> None:
    from meshwright.verbs.schedule.named_schedules import forewarned
    from meshwright.verbs.schedule.schedule_request import ScheduleRequest

    played = names[1:] if names[0] == SEVERAL else names[:1]
    print_remarks(forewarned(played, ScheduleRequest(**{**given, "memory_limit": None})))


def _print_lines(data: Mapping[str, Any]) -> None:
    """Print one JSON document, with one line per rank for entries with a value for every action."""
    parts = []
    for name, value in data.items():
        text = json.dumps(value, allow_nan=False)
        if name in LONG:
            text = "[\n" + ",\n".join(json.dumps(row, allow_nan=False) for row in value) + "\n]"
        parts.append(f"{json.dumps(name)}: {text}")
    typer.echo("{\n" + ",\n".join(parts) + "\n}")
