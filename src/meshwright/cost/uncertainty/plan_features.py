"""Features of plans that predictions may be wrong about: axes above 1, schedule, sharding, groups across nodes.

Two plans in one setting differ in some features and share the others; what a prediction gets wrong about a feature that
both have cancels in their ratio. ``cost/data/seen_features.csv`` has the features of published runs by stack.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.operators.price_plans import array_mesh, setting_hardware_times
from meshwright.plans.arrays.host_states import HOST_COLUMNS, host_share
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.defaults import gathers_unusually
from meshwright.plans.choices.gather import GATHERS
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.context_parallel import parse_context
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER
from meshwright.plans.setting import Setting

Bools = NDArray[np.bool_]
Named = Iterator[tuple[str, Bools]]
AXES = ("pp", "tp", "cp", "dp_replicate", "ep", "etp")
CROSSING: Mapping[str, tuple[str, ...]] = {
    "pp": ("pp",),
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("dp_shard", "dp_replicate"),
    "ep": ("ep",),
}
"""Axes by the word for groups over them."""


def plan_features(plans: PlanArrays, setting: Setting) -> dict[str, Bools]:
    """Return the features that any of the plans has, by name, with the mask of the plans that have it."""
    every = (
        *((axis, getattr(plans, axis) > 1) for axis in AXES),
        ("tp without sequence parallelism", (plans.tp > 1) & ~plans.sequence_parallel.astype(np.bool_)),
        *_contexts(plans, setting),
        *_schedules(plans),
        *_states(plans),
        *_gathers(plans),
        *_of_values(
            plans, "recompute", lambda value: value if isinstance(value, str) else "operators", "none"
        ),
        ("offload", plans.leaves_devices),
        *(("states on the host", host_share(plans, column) > 0) for column in HOST_COLUMNS),
        *_of_values(plans, "order", lambda value: "of ranks", DEFAULT_RANK_ORDER),
        *_crossings(plans, setting),
    )
    found: dict[str, Bools] = {}
    for name, mask in every:
        if mask.any():
            found[name] = found[name] | mask if name in found else np.asarray(mask)
    return found


def _contexts(plans: PlanArrays, setting: Setting) -> Named:
    usual = parse_context(setting.stack.contexts[0])
    for code, form in enumerate(plans.values["context"]):
        if form != usual:
            yield f"cp {form.word}", (plans.cp > 1) & (plans.context == code)


def _schedules(plans: PlanArrays) -> Named:
    piped = plans.pp > 1
    for code, choice in enumerate(plans.schedules):
        mine = piped & (plans.schedule == code)
        if choice.name != "1f1b":
            yield f"schedule {choice.name}", mine
        for name in (*choice.given_knobs, *(["vocabulary"] if choice.vocabulary else [])):
            yield f"schedule with {name}", mine
        if choice.step_validation == "after":
            yield "step validation", mine


def _states(plans: PlanArrays) -> Named:
    for code, name in enumerate(SHARDINGS):
        mine = (plans.sharding == code) & (plans.dp_shard > 1)
        if name != "none":
            yield name, mine


def _gathers(plans: PlanArrays) -> Named:
    unusual = gathers_unusually(plans) & (plans.dp_shard > 1)
    for code, word in enumerate(GATHERS):
        yield f"gather {word}", unusual & (plans.gather == code)


def _of_values(plans: PlanArrays, column: str, word: Callable[[object], object], nothing: object) -> Named:
    for code, value in enumerate(plans.values[column]):
        if value != nothing:
            yield f"{column} {word(value)}", getattr(plans, column) == code


def _crossings(plans: PlanArrays, setting: Setting) -> Named:
    """Yield the kinds of groups that do not lie inside one fast domain."""
    times = setting_hardware_times(setting)
    for code in np.unique(plans.order):
        rows = plans.order == code
        mesh = array_mesh(plans.take(rows), times)
        for word, axes in CROSSING.items():
            size, together = mesh.group(axes)
            crosses = np.zeros(len(plans), dtype=np.bool_)
            crosses[rows] = together < size
            yield f"{word} across nodes", crosses


@cache
def seen_features() -> dict[str, frozenset[str]]:
    """Return the features that published runs have, by stack."""
    found: dict[str, set[str]] = {}
    with (files("meshwright.cost") / "data" / "seen_features.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(row["stack"], set()).add(row["feature"])
    return {stack: frozenset(features) for stack, features in found.items()}
