"""Settings near a plan that could make it legal or let it fit: other values of its choices, one or two at a time."""

from collections.abc import Iterator, Sequence
from itertools import chain, product
from math import lcm

from meshwright.plans.forms.short import ShortPlan
from meshwright.stack.stack import Stack

DEGREES = ("dp_shard", "dp_replicate", "pp", "cp", "tp")


def setting_candidates(plan: ShortPlan, devices: int, experts: int) -> Iterator[str]:
    """Yield every other value of a choice that could help as ``tp=4``, the gentlest choices first."""
    layout, pipeline = plan.layout, plan.pipeline
    now = {
        "recompute": plan.recompute,
        "sharding": plan.sharding,
        "micro_batch": pipeline.micro_batch,
        "virtual_stages": pipeline.virtual_stages,
        "sequence_parallel": layout.sequence_parallel,
        **{axis: getattr(layout, axis) for axis in ("tp", "pp", "cp", "ep", "etp")},
    }
    values: dict[str, Sequence[object]] = {
        "recompute": ("selective", "full", "none"),
        "micro_batch": [n for n in (1, 2, 4, 8, 16) if n < pipeline.micro_batch],
        "sharding": ("zero1", "zero2", "zero3"),
        "sequence_parallel": ("true",) if layout.sequence_parallel is False else (),
        "tp": divisors(devices, 64),
        "pp": divisors(devices, 128),
        "virtual_stages": (1, 2, 4),
        "cp": divisors(devices, 32),
        "ep": divisors(experts, 512) if experts else (1,),
        "etp": (1, layout.tp),
    }
    for name, choices in values.items():
        yield from (f"{name}={choice}" for choice in choices if choice != now[name])


def divisors(number: int, most: int) -> list[int]:
    """Return the divisors of ``number`` up to ``most``, ascending."""
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def candidates_for(
    plan: ShortPlan, path: str, devices: int, experts: int, stack: Stack
) -> Iterator[tuple[str, ...]]:
    """Yield changes that could remove a problem at ``path``: of its own key, of another one, then of both."""
    own = list(_own(plan, path, devices, experts, stack))
    others = [s for s in _nearest_first(plan, devices, experts) if s not in own]
    yield from ((setting,) for setting in chain(own, others))
    yield from ((a, b) for a, b in product(own, others) if _name(a) != _name(b))


def _nearest_first(plan: ShortPlan, devices: int, experts: int) -> list[str]:
    """Return ``setting_candidates`` with the degrees nearest to the plan's first."""
    found = list(setting_candidates(plan, devices, experts))
    places = {name: place for place, name in enumerate(dict.fromkeys(map(_name, found)))}

    def order(setting: str) -> tuple[int, float]:
        name, _, value = setting.partition("=")
        now = getattr(plan.layout, name, None) if value.isdecimal() else None
        return places[name], max(int(value) / now, now / int(value)) if now else 0.0

    return sorted(found, key=order)


def _own(plan: ShortPlan, path: str, devices: int, experts: int, stack: Stack) -> Iterator[str]:
    """Yield other values of the key at ``path``, numbers nearest to the present one first."""
    _, *keys = path.split(".")
    layout, pipeline, workload = plan.layout, plan.pipeline, plan.workload
    at_once = layout.dp_replicate * layout.dp_shard * pipeline.micro_batch
    numbers: dict[str, tuple[int, Sequence[int]]] = {
        axis: (getattr(layout, axis), divisors(devices, devices)) for axis in DEGREES
    } | {
        "ep": (layout.ep, divisors(experts, experts)),
        "etp": (layout.etp, divisors(devices, devices)),
        "micro_batch": (pipeline.micro_batch, range(1, 17)),
        "virtual_stages": (pipeline.virtual_stages, range(1, 9)),
        "global_batch": _multiples(workload.global_batch, at_once, at_once * layout.pp),
        "seq_len": _multiples(workload.seq_len, 2 * layout.cp, lcm(2 * layout.cp, layout.cp * layout.tp)),
    }
    words: dict[str, Sequence[str]] = {
        "schedule": stack.schedules,
        "sharding": stack.shardings,
        "gather": (*stack.gathers, *stack.pipeline_gathers),
        "context": stack.contexts,
        "sequence_parallel": ("true", "false"),
    }
    for key in DEGREES if path == "layout" else keys or [path]:
        now, values = numbers.get(key, (1, ()))
        near = sorted((n for n in values if n != now), key=lambda n: max(n / now, now / n))
        yield from (f"{key}={number}" for number in near)
        yield from (f"{key}={word}" for word in words.get(key, ()))
    if len(keys) > 1:
        yield f"{path}=null"


def _multiples(now: int, *units: int) -> tuple[int, Sequence[int]]:
    """Return a number with the multiples next to it of each unit."""
    return now, sorted({max(1, now // unit + more) * unit for unit in units for more in (0, 1)})


def _name(setting: str) -> str:
    return setting.partition("=")[0]
