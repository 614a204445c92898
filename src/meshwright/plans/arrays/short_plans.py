"""Conversion between short plans and arrays of plans."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from meshwright.errors import InputError, Problem
from meshwright.plans.arrays.plan_arrays import Ints, PlanArrays
from meshwright.plans.choices import CHOICES
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.short import ShortPlan, default_gather

NUMBERS: Mapping[str, str] = {
    **{axis: f"layout.{axis}" for axis in ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")},
    **{name: f"pipeline.{name}" for name in ("micro_batch", "virtual_stages")},
}
"""Columns of numbers, with their paths in a plan file."""
ABSENT = {"offload": Offload()}
"""What a section is that a plan leaves out."""
COLUMNS: tuple[str, ...] = (*NUMBERS, *CHOICES)


def short_plan(plans: PlanArrays, row: int, header: ShortPlan) -> ShortPlan:
    """Return one of the plans; what the arrays do not hold comes from ``header``."""
    number = {name: int(plans.columns[name][row]) for name in COLUMNS}
    given: dict[str, object] = {path: number[name] for name, path in NUMBERS.items()}
    given |= {
        choice.path: choice.written(plans.values[name][number[name]]) for name, choice in CHOICES.items()
    }
    given |= {"layout.node_order": plans.node_order, "layout.expert_order": plans.expert_order}
    return _without_defaults(with_paths(header, given))


def with_paths(plan: ShortPlan, values: Mapping[str, object]) -> ShortPlan:
    """Return a plan with these values at these paths of its file."""
    inner: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        inner.setdefault(section, {})[key] = value
    update = inner.pop("", {})
    for section, given in inner.items():
        whole: Any = update.get(section, getattr(plan, section))
        said = any(value is not None for value in given.values())
        update[section] = (whole or ABSENT[section]).model_copy(update=given) if whole or said else None
    return plan.model_copy(update=update)


def _without_defaults(plan: ShortPlan) -> ShortPlan:
    """Return the plan without fields that equal their default, or that have no effect because cp = 1."""
    update: dict[str, object] = {}
    if plan.gather == default_gather(plan.sharding, plan.layout.pp):
        update["gather"] = None
    if plan.layout.cp == 1 and plan.layout.context is not None:
        update["layout"] = plan.layout.model_copy(update={"context": None})
    return plan.model_copy(update=update) if update else plan


def usual_codes(count: int) -> dict[str, Ints]:
    """Return the columns of all choices for so many plans, each with its first value."""
    return {name: np.zeros(count, dtype=choice.code_type) for name, choice in CHOICES.items()}


def usual_values() -> dict[str, tuple[Any, ...]]:
    """Return what the codes of each choice stand for: all its values, or the one of a plan without the key."""
    plain = ShortPlan.model_construct()  # type: ignore[call-arg]
    return {name: choice.known or (choice.of(plain),) for name, choice in CHOICES.items()}


def from_shorts(plans: list[ShortPlan]) -> PlanArrays:
    """Return arrays of plans that share everything the arrays do not hold.

    Raises InputError for states in chunks, which closed forms do not price.
    """
    if any(plan.offload is not None and plan.offload.manager is not None for plan in plans):
        rule = "states in chunks are priced by predict alone, plan by plan"
        raise InputError(Problem("offload.manager", "chunks", rule, "predict, or take manager out"))
    columns = {
        name: np.array([attrgetter(path)(plan) for plan in plans], dtype=np.int64)
        for name, path in NUMBERS.items()
    }
    whole = np.array([p.sharding == "none" for p in plans])
    columns["dp_replicate"] = np.where(
        whole, columns["dp_replicate"] * columns["dp_shard"], columns["dp_replicate"]
    )
    columns["dp_shard"] = np.where(whole, 1, columns["dp_shard"])
    values: dict[str, tuple[Any, ...]] = {}
    for name, choice in CHOICES.items():
        own = [choice.of(plan) for plan in plans]
        values[name] = choice.known or tuple(dict.fromkeys(own))
        columns[name] = np.array([values[name].index(value) for value in own], dtype=choice.code_type)
    return PlanArrays(
        columns=columns,
        values=values,
        node_order=plans[0].layout.node_order,
        expert_order=plans[0].layout.expert_order,
        synchronise=plans[0].synchronise,
    )
