"""Changes to a short plan from the command line: ``tp=4``, ``pipeline.schedule=gpipe``, ``schedule.memory_limit=0.5``.

A bare name means the key of that name wherever it lies. A schedule that is set comes without the knobs of the one
before. Keys of a list's items have the item's place in their path: ``synchronise.0.every=50``. When a degree changes,
data parallelism absorbs it so that the product stays the number of devices: dp_shard does, or dp_replicate where
nothing is sharded or dp_shard was itself set. When sharding is turned on or off, the data-parallel degrees move to
where it puts them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from operator import attrgetter

from meshwright.errors import InputError, PlanError, Problem, attempted, nearest, written
from meshwright.plans.choices import CHOICES
from meshwright.plans.context_parallel import USUAL, context_in_full
from meshwright.plans.files.expert_pairs_file import read_routing_file
from meshwright.plans.files.validation_messages import sections, validated
from meshwright.plans.files.yaml_text import read_value
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.short import ShortPlan, default_gather
from meshwright.plans.rules.expert_order import read_expert_order

MESH_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
FIXED = ("plan",)
IN_FILES = {"workload.routing": read_routing_file, "layout.expert_order": read_expert_order}
NAME_IN = {"capacity": "factor", "fragments": "count"}
"""Where a mapping has what a name or a number alone says, if not under ``name``."""
REPLACED = ("every", "outer", "low_rank")
"""Keys whose names and numbers no mapping says."""
IN_LIST = re.compile(r"(synchronise)\.(\d{1,6})(\.[a-z_]+)+")
"""Keys of items of lists."""


def apply_overrides(plan: ShortPlan, settings: Iterable[str], devices: int | None) -> ShortPlan:
    """``plan`` with every ``name=value`` of ``settings``, for ``devices`` devices. Raises InputError with all problems.

    Where the number of devices is not known, None, no degree absorbs another one's change.
    """
    problems: list[Problem] = []
    changes = _parse(settings, problems)
    changed = _changed(plan, changes, problems)
    if not problems:
        return _moved(plan, changed, changes, devices)
    attempted(lambda: _moved(plan, changed, changes, devices), problems)
    raise InputError(problems)


def try_overrides(plan: ShortPlan, settings: Iterable[str], devices: int | None) -> ShortPlan | None:
    """Return the plan with every setting; None where they are wrong."""
    try:
        return apply_overrides(plan, settings, devices)
    except InputError:
        return None


def moved_degrees(before: ShortPlan, after: ShortPlan, settings: Iterable[str]) -> list[Problem]:
    """Warnings of the degrees that ``settings`` changed without naming them."""
    named = _parse(settings, [])
    old, new = before.layout, after.layout
    return [
        Problem(
            f"layout.{axis}",
            getattr(new, axis),
            f"was {getattr(old, axis)}: changed with what was set, so that all devices are used",
            f"set {axis} too, where another division is meant",
            "warning",
        )
        for axis in MESH_AXES
        if f"layout.{axis}" not in named and getattr(old, axis) != getattr(new, axis)
    ]


def overrides_between(before: ShortPlan, after: ShortPlan) -> tuple[str, ...]:
    """Every setting that makes ``before`` what ``after`` is, also if they are written into its file.

    What follows from other keys is left out where a plan does not say it.
    """
    old, new = _values(before, after), _values(after, after)
    changed = [path for path in new if new[path] != old.get(path)]
    if (before.sharding == "none") != (after.sharding == "none"):
        changed += [path for path in ("layout.dp_replicate", "layout.dp_shard") if path not in changed]
    names = {path: name for name, path in sections(ShortPlan).items()}
    return tuple(f"{names.get(path, path.rpartition('.')[2])}={written(new[path])}" for path in changed)


def _values(plan: ShortPlan, others: ShortPlan) -> dict[str, object]:
    """Return the searched values by path; what a plan leaves out follows from the keys of ``others``."""
    layout, pipeline = plan.layout, plan.pipeline
    sequence = others.layout.tp > 1 if layout.sequence_parallel is None else layout.sequence_parallel
    offload = plan.offload or Offload()
    values: dict[str, object] = {
        f"layout.{axis}": getattr(layout, axis) for axis in (*MESH_AXES, "ep", "etp")
    }
    values |= {
        "layout.sequence_parallel": sequence,
        "layout.rank_order": layout.rank_order,
        "layout.node_order": layout.node_order,
        "layout.expert_order": layout.expert_order,
        "layout.context": layout.to_data().get("context", USUAL.word),
        "sharding": plan.sharding,
        "gather": plan.gather or default_gather(others.sharding, others.layout.pp),
        "pipeline.micro_batch": pipeline.micro_batch,
        "pipeline.virtual_stages": pipeline.virtual_stages,
        "pipeline.schedule": pipeline.to_data()["schedule"],
        "recompute": plan.recompute,
        "offload.activations": offload.activations,
        "offload.ahead": offload.ahead,
        "offload.optimizer": offload.optimizer or "none",
        "offload.parameters": offload.parameters or "none",
    }
    values |= {f"dtypes.{key}": word for key, word in (plan.dtypes.written if plan.dtypes else {}).items()}
    further = [c.path for c in CHOICES.values() if not any(path.startswith(c.path) for path in values)]
    return values | {path: attrgetter(path)(plan) for path in further}


def _parse(settings: Iterable[str], problems: list[Problem]) -> dict[str, object]:
    """Parse settings to values by path. Add to ``problems`` what is no setting, names no key or is repeated."""
    paths = sections(ShortPlan)
    changeable = [name for name in paths if name not in FIXED]
    changes: dict[str, object] = {}
    for setting in settings:
        name, sign, text = (part.strip() for part in setting.partition("="))
        in_list = name if IN_LIST.fullmatch(name) else ""
        path = in_list or paths.get(name) or paths.get(name.rpartition(".")[2], "")
        if not sign or not text:
            problems.append(Problem("set", setting, "must read name=value", "e.g. tp=4"))
        elif name in FIXED or not f".{path}".endswith(f".{name}"):
            problems.append(Problem("set", name, "unknown key", nearest(name.rpartition(".")[2], changeable)))
        elif path in changes:
            problems.append(Problem("set", setting, f"{path} is set twice", "set it once"))
        else:
            try:
                changes[path] = _value(path, text, name)
            except InputError as error:
                problems += error.problems
    return changes


def _value(path: str, text: str, name: str) -> object:
    """Parse a setting's value; counts and orders of experts may lie in a file. Raise InputError."""
    if path in IN_FILES and text.endswith(".csv"):
        return IN_FILES[path](text, path)
    return read_value(text, name)


def _changed(plan: ShortPlan, changes: Mapping[str, object], problems: list[Problem]) -> ShortPlan:
    """Return the plan with the valid changes; add the problems of the others to ``problems``."""
    wrong: list[Problem] = []
    found = attempted(lambda: _with_changes(plan, changes), wrong)
    if found is not None:
        return found
    fields = tuple(problem.field for problem in wrong)
    right = {path: value for path, value in changes.items() if not any(_below(f, path) for f in fields)}
    problems += wrong
    return _with_changes(plan, right) if len(right) < len(changes) else plan


def _below(field: str, path: str) -> bool:
    """Return true if a problem's field is a setting's, or a part of it."""
    return field == path or field.startswith((f"{path}.", f"{path}["))


def _with_changes(plan: ShortPlan, changes: Mapping[str, object]) -> ShortPlan:
    data = plan.model_dump(exclude_none=True, by_alias=True)
    problems: list[Problem] = []
    for path in sorted(changes, key=lambda path: path.count(".")):
        found = IN_LIST.fullmatch(path)
        if found is None:
            _put(data, path.split("."), changes[path])
            continue
        key, place, items = found[1], int(found[2]), data.get(found[1], ())
        if isinstance(items, tuple) and place < len(items):
            _put(items[place], path.split(".")[2:], changes[path])
        else:
            count = len(items) if isinstance(items, tuple) else 0
            problems.append(
                Problem(path, changes[path], f"{key} has {count} entries", f"write the key {key}")
            )
    return validated(ShortPlan, data, others=problems)


def _moved(
    before: ShortPlan, changed: ShortPlan, changes: Mapping[str, object], devices: int | None
) -> ShortPlan:
    """Return the changed plan with the degrees that follow from the changed ones."""
    degrees = {path.removeprefix("layout.") for path in changes}.intersection(MESH_AXES)
    moved = changed if degrees & {"dp_replicate", "dp_shard"} else _data_degrees_moved(before, changed)
    return _absorbed(moved, degrees, devices) if degrees and devices is not None else moved


def _put(data: dict[str, object], path: Sequence[str], value: object) -> None:
    """Set the value at a path; a name on the way becomes the mapping that it is short for."""
    key, *below = path
    if below:
        inner = data.get(key)
        data[key] = inner = inner if isinstance(inner, dict) else _in_full(key, inner)
        _put(inner, below, value)
    else:
        data[key] = value


def _in_full(key: str, name: object) -> dict[str, object]:
    """Return the mapping that a name or a number alone is short for."""
    if name is None or key in REPLACED:
        return {}
    if key == "context":
        return context_in_full(str(name)).model_dump()
    return {NAME_IN.get(key, "name"): name}


def _data_degrees_moved(before: ShortPlan, after: ShortPlan) -> ShortPlan:
    """Sharding off: all replicas in dp_replicate. Turned on: all of them in dp_shard.

    With entries of ``synchronise`` each axis stays as it is.
    """
    if after.synchronise:
        return after
    layout = after.layout
    replicas = layout.dp_replicate * layout.dp_shard
    if after.sharding == "none":
        return _with_degrees(after, {"dp_replicate": replicas, "dp_shard": 1})
    if before.sharding == "none":
        return _with_degrees(after, {"dp_replicate": 1, "dp_shard": replicas})
    return after


def _absorbed(plan: ShortPlan, degrees: set[str], devices: int) -> ShortPlan:
    """Return the plan with a data-parallel degree that was not set adapted to ``devices``."""
    order = ("dp_replicate", "dp_shard") if plan.sharding == "none" else ("dp_shard", "dp_replicate")
    free = [axis for axis in order if axis not in degrees]
    layout = plan.layout
    values = {axis: getattr(layout, axis) for axis in MESH_AXES}
    if not free or prod(values.values()) == devices:
        return plan
    others = prod(value for axis, value in values.items() if axis != free[0])
    if devices % others:
        names = [axis for axis in MESH_AXES if axis != free[0]]
        rule = (
            f"{free[0]} = devices / ({'·'.join(names)}) = {devices} / "
            f"({'·'.join(str(values[axis]) for axis in names)}) = {devices / others:g} is not whole"
        )
        raise PlanError(Problem(f"layout.{free[0]}", values[free[0]], rule, _hint(values, degrees, devices)))
    return _with_degrees(plan, {free[0]: devices // others})


def _hint(values: Mapping[str, int], degrees: set[str], devices: int) -> str:
    """For one changed degree: the values that divide what the others leave."""
    axis = min(degrees)
    kept = prod(values[other] for other in ("pp", "cp", "tp") if other != axis)
    room = devices // kept if kept and devices % kept == 0 else 0
    legal = [str(d) for d in range(1, min(room, 1024) + 1) if room % d == 0]
    return f"{axis} one of {', '.join(legal)}" if legal else f"degrees whose product divides {devices}"


def _with_degrees(plan: ShortPlan, degrees: Mapping[str, int]) -> ShortPlan:
    data = plan.model_dump(exclude_none=True, by_alias=True)
    return validated(ShortPlan, data | {"layout": data["layout"] | degrees})
