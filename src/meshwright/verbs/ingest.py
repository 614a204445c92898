"""Ingest training logs: each log becomes a row of a table of runs, completed from its plan.

The plan of a log is the one that is named, or ``plan.yaml`` in the log's own folder (as ``probe`` writes it). What the
log says stands above the plan for numbers, and settings that are named stand above both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import abspath
from pathlib import Path
from typing import Any, NamedTuple

from meshwright.cluster.cluster import Cluster, Pool
from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.ingestion.logs.plan_columns import fields_without_column, long_plan_columns, plan_columns
from meshwright.ingestion.logs.run_row import RunRow, run_row
from meshwright.ingestion.logs.run_table import append_rows
from meshwright.ingestion.logs.summary import LogSummary, read_log_file
from meshwright.plans.files.plan_file import load_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve, with_files_read
from meshwright.stack.load import load_stack
from meshwright.validation.model_to_columns import facts_without_column, model_columns
from meshwright.validation.run_model import local_model
from meshwright.verbs.absolute_paths import with_whole_paths

PLAN_OF_LOG, METRICS = "plan.yaml", "metrics.jsonl"
GIGABIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Ingested:
    """Rows with the logs they are from."""

    logs: tuple[str, ...]
    summaries: tuple[LogSummary, ...]
    rows: tuple[RunRow, ...]

    def table(self, existing: str = "") -> str:
        """Merge the rows into an existing table; a run that is there already is replaced."""
        return append_rows(existing, [row.cells for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "rows": [
                {
                    "log": log,
                    "reader": summary.reader,
                    "cells": dict(row.cells),
                    "origins": {name: f"{o.source}: {o.words}" for name, o in row.origins.items()},
                    "steps": summary.timing.steps if summary.timing else 0,
                    "step_time_s": summary.step_time_s,
                    "low_s": summary.timing.low_s if summary.timing else None,
                    "high_s": summary.timing.high_s if summary.timing else None,
                    "restarts": summary.restarts,
                    "unread_lines": summary.unread_lines,
                    "problems": [problem.to_json() for problem in row.problems],
                }
                for log, summary, row in zip(self.logs, self.summaries, self.rows, strict=True)
            ]
        }


def ingest_logs(logs: Sequence[str], plan: str | None = None, settings: Iterable[str] = ()) -> Ingested:
    """Read logs. Raises InputError with the problems of all of them, each with its log's name."""
    given = dict(map(_setting, settings))
    summaries, rows, problems = [], [], []
    for log, name in zip(logs, run_names(logs), strict=True):
        try:
            summary = read_log_file(log)
            planned = _planned(log, plan)
            row = run_row(summary, {"run_id": name, **planned.cells, **given}, planned.device)
            rows.append(replace(row, problems=(*row.problems, *_model_remarks(row.cells.get("model", "")))))
            summaries.append(summary)
        except InputError as error:
            problems += [Problem(f"{log}: {p.field}", p.value, p.rule, p.suggestion) for p in error.problems]
    if problems:
        raise InputError(problems)
    return Ingested(tuple(logs), tuple(summaries), tuple(rows))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise InputError(Problem("set", text, "must read COLUMN=value", "device=h100-sxm-80gb"))
    return name, value


def run_names(logs: Sequence[str]) -> list[str]:
    """Return a name for each log: its folder and file name, with more folders where logs would share a name.

    Every run of ours calls its metrics and mostly its folder alike, so theirs have one folder more.
    """
    paths = [Path(abspath(log)) for log in logs]
    return ["/".join(_name(path, paths)) for path in paths]


def _name(path: Path, others: Sequence[Path]) -> tuple[str, ...]:
    parts = _parts(path)
    for count in range(3 if path.name == METRICS else 2, len(parts)):
        name = parts[-count:]
        if all(other == path or _parts(other)[-count:] != name for other in others):
            return name
    return parts


def _parts(path: Path) -> tuple[str, ...]:
    return (*path.parent.parts[1:], path.stem)


class _Planned(NamedTuple):
    """The columns of the plan that a log ran, and the id of its device."""

    cells: Mapping[str, object]
    device: str | None


def _planned(log: str, plan: str | None) -> _Planned:
    path = Path(plan) if plan else Path(log).parent / PLAN_OF_LOG
    if plan is None and not path.is_file():
        return _Planned({}, None)
    read = with_whole_paths(with_files_read(load_plan(path), path.parent))
    if isinstance(read, ShortPlan):
        unsaid, cells = fields_without_column(read), plan_columns(read)
        if unsaid:
            raise UnsupportedError(unsaid)
    else:
        cells = long_plan_columns(read, resolve(read).setting.model.architecture)
    pool = _only_pool(load_cluster(read.cluster))
    machine = {
        "device": pool.device.id,
        "devices": str(pool.count),
        "devices_per_node": str(pool.node.devices),
        "node_nic_gbit_per_s": f"{pool.node.nic_bytes_per_s_per_device * pool.node.devices / GIGABIT:g}",
    }
    model = local_model(read.model)
    shape = model_columns(model) if model else {}
    return _Planned({**shape, **cells, **machine, "stack": load_stack(read.stack).id}, pool.device.id)


def _only_pool(cluster: Cluster) -> Pool:
    if len(cluster.pools) != 1:
        rule = f"has {len(cluster.pools)} pools, and a run is on one kind of device"
        raise InputError(Problem("cluster", cluster.name, rule, "the cluster of that pool alone"))
    return cluster.pool


def _model_remarks(name: str) -> Iterator[Problem]:
    """Yield a remark on facts that are lost if a local model's configuration moves."""
    model = local_model(name)
    unsaid = facts_without_column(model) if model else ()
    if unsaid:
        rule = f"no column says its {', '.join(unsaid)}, which validate and calibrate read at this path"
        yield Problem("model", name, rule, "keep it there", "warning")
