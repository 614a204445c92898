"""Published plans as plans of ours: the table ``benchmarks/expert-plans/runs.csv``, the best of a search, what is
not searched.

The table has the columns that ``validate`` reads, and a ``note``. A row is a setting (model, cluster, batch, stack) and
a plan for it; both are checked and predicted like anybody's.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.explanation.plan_difference import changed_choices, legal_plan
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import COLUMNS, from_shorts, short_plan
from meshwright.plans.forms.conversion import short_of_only_layout
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.search.space.plan_space import Ints, Space
from meshwright.validation.read_run_table import Run, Skipped, read_runs
from meshwright.validation.run_plan import plan_arrays, run_plan
from meshwright.validation.run_setting import setting_of
from meshwright.verbs.plan.search_space import search, search_scope

RUNS = Path(__file__).parent / "expert-plans" / "runs.csv"


@dataclass(frozen=True)
class Case:
    """A published plan. ``plan`` is the rule that it breaks where it is illegal."""

    run: Run
    note: str
    setting: Setting
    header: ShortPlan
    plan: Resolved | str


@dataclass(frozen=True)
class Best:
    """The best plan of a search, and how the published one differs from the nearest plan that was searched."""

    plan: Resolved
    beyond: Mapping[str, tuple[Any, Any]]


def cases() -> list[Case]:
    """Every line of the table. Raises ValueError for one that can not be read."""
    with RUNS.open(encoding="utf-8") as lines:
        notes = [line["note"] for line in csv.DictReader(lines)]
    return [_case(run, note) for run, note in zip(read_runs(RUNS), notes, strict=True)]


def _case(run: Run | Skipped, note: str) -> Case:
    if isinstance(run, Skipped):
        raise ValueError(f"{RUNS.name}, line {run.line}: {run.reason}")
    setting = setting_of(run.given)
    workload = setting.workload
    spec = WorkloadSpec(
        task=workload.task,
        seq_len=workload.seq_len,
        global_batch=workload.global_batch,
        precision=workload.precision,
    )
    names = {"model": setting.model.name, "cluster": setting.cluster.name, "stack": setting.stack.id}
    header = ShortPlan(plan=1, workload=spec, **names)
    ((_, arrays),) = plan_arrays([run_plan(run.chosen, setting.cluster.devices)], setting)
    return Case(run, note, setting, header, legal_plan(short_plan(arrays, 0, header), arrays.stages, setting))


def best_of(case: Case) -> Best:
    """What ``plan`` answers to the question of a case. Raises ValueError where nothing fits."""
    setting = case.setting
    space, found = search(search_scope({}, None, 1, setting), setting)
    if not len(found.ranking):
        raise ValueError(f"{case.run.run_id}: nothing fits")
    plan = _searched(found.plans, found.top(1)[0], case)
    return Best(plan, _beyond(case, space))


def _searched(plans: PlanArrays, row: int, case: Case) -> Resolved:
    plan = legal_plan(short_plan(plans, row, case.header), "balanced", case.setting)
    assert isinstance(plan, Resolved), plan
    return plan


def _beyond(case: Case, space: Space) -> Mapping[str, tuple[Any, Any]]:
    """(own, nearest) value of each choice of a legal plan that no plan of a search has together."""
    if not isinstance(case.plan, Resolved):
        return {}
    own = from_shorts([short_of_only_layout(case.plan.long)])
    chosen = {name: int(getattr(own, name)[0]) for name in COLUMNS} | {
        "schedule": _code(own.schedules[0], space.base.schedules),
        "recompute": _code(own.values["recompute"][0], space.base.values["recompute"]),
    }
    near = [_agreeing(space, code, chosen) for code in range(len(space.variants))]
    most = max(int(agreed.max(initial=0)) for _, agreed in near)
    # What a plan may choose later adds one at most.
    rows = [of_variant[agreed >= most - 1] for of_variant, agreed in near]
    variants = np.repeat(np.arange(len(rows)), [len(of_variant) for of_variant in rows])
    plans = space.every(variants, np.concatenate(rows)).plans
    agreed = sum(getattr(plans, name) == value for name, value in chosen.items())
    return changed_choices(case.plan.long, _searched(plans, int(np.argmax(agreed)), case).long)


def _agreeing(space: Space, variant: int, chosen: Mapping[str, int]) -> tuple[Ints, Ints]:
    """Base plans that have a variant, and how many of these choices they share, but for what is chosen later."""
    rows = np.flatnonzero(space.legal[variant])
    base = space.base.take(rows)
    other = space.variants[variant].of(base)
    agreed = np.zeros(len(rows), dtype=np.int64)
    for name, value in chosen.items():
        if name != space.later.column:
            agreed += other.get(name, getattr(base, name)) == value
    return rows, agreed


def _code(value: Any, known: Sequence[Any]) -> int:
    """The place of a value among those that are known, or one that none has."""
    return known.index(value) if value in known else -1
