"""Find the plan of a space that needs the least memory on its fullest device, and break that memory down.

Plans are evaluated in the order of their lower bounds of memory until the next bound is above the least that was found,
so the result is exact among plans that have closed forms. Where none has, the plan with the smallest states stands for
all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.cost.closed_form.evaluate_plans import Estimates, evaluate
from meshwright.cost.lower_bounds.state_memory import state_memory_bound
from meshwright.cost.memory.memory_breakdown import KEYS
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.present.plan_answers.layout_text import layout_words, pipeline_words, recompute_words
from meshwright.search.space.plan_space import Space
from meshwright.units import GIB, format_bytes
from meshwright.verbs.plan.search_space import has_closed_form, space_bounds, usable_bytes

CHUNK = 256


@dataclass(frozen=True, slots=True)
class LeanestPlan:
    """The plan with the smallest peak memory, as ``description`` says; bytes by kind on its fullest device."""

    description: str
    plan: ShortPlan
    memory_bytes: Mapping[str, float]

    @property
    def total_bytes(self) -> float:
        """Peak of the fullest device in bytes."""
        return sum(self.memory_bytes.values())


def leanest_plan(space: Space, header: ShortPlan, setting: Setting) -> LeanestPlan | None:
    """Return the plan with the least memory; None where the space is empty."""
    formed = space.only(has_closed_form(space))
    if not len(formed):
        return _with_smallest_states(space, header, setting) if len(space) else None
    bounds = np.stack([bound.total_bytes for bound in space_bounds(formed, setting)])
    variants, rows = np.nonzero(formed.legal)
    ascending = np.argsort(bounds[variants, rows], kind="stable")
    best: LeanestPlan | None = None
    for at in range(0, len(ascending), CHUNK):
        cells = ascending[at : at + CHUNK]
        if best is not None and bounds[variants, rows][cells[0]] >= best.total_bytes:
            break
        cells = np.sort(cells)
        plans = formed.every(variants[cells], rows[cells]).plans
        found = evaluate(plans, setting, only_fitting=True)
        row = int(found.total_bytes.argmin())
        if best is None or found.total_bytes[row] < best.total_bytes:
            best = _plan_at(row, plans, found, header, "the leanest plan")
    return best


def _with_smallest_states(space: Space, header: ShortPlan, setting: Setting) -> LeanestPlan:
    bounds = np.where(space.legal.any(axis=0), state_memory_bound(space.base, setting), np.inf)
    base = int(bounds.argmin())
    variants = np.flatnonzero(space.legal[:, base])
    plans = space.every(variants, np.full(len(variants), base)).plans
    found = evaluate(plans, setting, only_fitting=True)
    row = int(found.total_bytes.argmin())
    return _plan_at(row, plans, found, header, "the plan with the smallest states")


def _plan_at(
    row: int, plans: PlanArrays, found: Estimates, header: ShortPlan, description: str
) -> LeanestPlan:
    memory = {key: float(found.memory[key][row]) for key in KEYS}
    return LeanestPlan(description, short_plan(plans, row, header), memory)


def memory_summary(space: Space, header: ShortPlan, setting: Setting) -> tuple[str, ...]:
    """Return why nothing fits: what the leanest plan holds, by kind, and what is usable of a device."""
    found, usable = leanest_plan(space, header, setting), usable_bytes(setting)
    if found is None or found.total_bytes <= usable:
        return ()
    plan, capacity = found.plan.to_data(), setting.cluster.pool.device.memory_bytes
    kinds = ", ".join(f"{kind} {held / GIB:.2f}" for kind, held in found.memory_bytes.items() if held)
    return (
        f"{found.description} holds {format_bytes(found.total_bytes)} on its fullest device, usable are "
        f"{format_bytes(usable)}",
        f"it holds in GiB: {kinds}",
        f"it is {_words(plan)}",
        f"a device has {format_bytes(capacity)}: allocators reserve and fragment {1 - usable / capacity:.0%}",
    )


def _words(plan: dict[str, Any]) -> str:
    pipeline = plan["pipeline"]
    return (
        f"{layout_words(plan['layout'])}, {pipeline_words(pipeline)}, micro-batch {pipeline['micro_batch']}, "
        f"sharding {plan['sharding']}, recompute {recompute_words({'plan': plan})}"
    )
