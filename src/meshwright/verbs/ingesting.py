"""Ingest training logs: every log one row of a table of runs, with what its plan says beside it.

The plan of a log is the one that is named, or ``plan.yaml`` in the log's own folder (as ``probe`` writes it). What the
log says stands above the plan for numbers, and settings that are named stand above both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.import_.logs.plan_cells import long_plan_cells, plan_cells, without_column
from meshwright.import_.logs.row import LogRow, row_of
from meshwright.import_.logs.summary import LogSummary, read_log_file
from meshwright.import_.logs.table import append_rows
from meshwright.plan.files import load_plan
from meshwright.plan.resolve import beside, resolve
from meshwright.plan.short import ShortPlan
from meshwright.stack.load import load_stack

BESIDE = "plan.yaml"
GIGABIT = 1e9 / 8


@dataclass(frozen=True, slots=True)
class Ingested:
    """Rows with the logs they are from."""

    logs: tuple[str, ...]
    summaries: tuple[LogSummary, ...]
    rows: tuple[LogRow, ...]

    def table(self, existing: str = "") -> str:
        """The rows put into an existing table; a run that is there already is replaced."""
        return append_rows(existing, [row.cells for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """The public form."""
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
    for log in logs:
        try:
            summary = read_log_file(log)
            known = {"run_id": _name(log)} | _planned(log, plan) | given
            rows.append(row_of(summary, known))
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


def _name(log: str) -> str:
    """A run's name: the log's, with its folder's, which tells jobs of a probe apart."""
    path = Path(log)
    return f"{path.resolve().parent.name}/{path.stem}"


def _planned(log: str, plan: str | None) -> dict[str, str]:
    """The columns of the plan that the log ran."""
    path = Path(plan) if plan else Path(log).parent / BESIDE
    if plan is None and not path.is_file():
        return {}
    read = beside(load_plan(path), path.parent)
    if isinstance(read, ShortPlan):
        unsaid, cells = without_column(read), plan_cells(read)
        if unsaid:
            raise UnsupportedError(unsaid)
    else:
        cells = long_plan_cells(read, resolve(read).setting.model.architecture)
    pool = load_cluster(read.cluster).pool
    machine = {
        "device": pool.device.id,
        "devices": str(pool.count),
        "devices_per_node": str(pool.node.devices),
        "node_nic_gbit_per_s": f"{pool.node.nic_bytes_per_s_per_device * pool.node.devices / GIGABIT:g}",
    }
    return cells | machine | {"stack": load_stack(read.stack).id}
