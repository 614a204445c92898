"""List the searched values of each plan key, and the values left out with the reasons.

A plan that is faster than the fastest one found has a key whose value was left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.plans.arrays.host_states import HOST_COLUMNS
from meshwright.plans.arrays.short_plans import NUMBERS
from meshwright.plans.choices import CHOICES
from meshwright.plans.choices.gather import GATHERS, NEVER
from meshwright.plans.choices.plan_choice import Bools, format_choice
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.setting import Setting
from meshwright.search.space.choices import SEARCHED_CHOICES
from meshwright.search.space.legal_plans import MAX_MICRO_BATCH, divisors
from meshwright.search.space.plan_space import Space
from meshwright.search.space.searched_schedules import LIMITS, all_schedules
from meshwright.search.space.variants import leaves_open
from meshwright.stack.state_types import allowed_types
from meshwright.verbs.plan.layers.range_bound import least_step_of_ranges
from meshwright.verbs.plan.search_space import has_closed_form

PLAYED = "not with schedules without closed forms, nor with activations on the hosts"
"""Why unusual values of some choices are left out of a part of the space."""
AUTO = "searched with --schedule auto"
FIELD = "layers"


@dataclass(frozen=True, slots=True)
class SearchedValues:
    """Values of a key that were searched."""

    key: str
    values: tuple[Any, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {"key": self.key, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class LeftOutValues:
    """Values of a key that were not searched, and why; words where there is no end of them."""

    key: str
    values: tuple[Any, ...]
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {"key": self.key, "values": list(self.values), "why": self.why}


@dataclass(frozen=True, slots=True)
class SpaceValues:
    """All that a search tried and left out."""

    searched: tuple[SearchedValues, ...]
    left_out: tuple[LeftOutValues, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {
            "searched": [one.to_json() for one in self.searched],
            "left_out": [one.to_json() for one in self.left_out],
        }


def space_values(space: Space, setting: Setting, best_s: float | None = None) -> SpaceValues:
    """Return the values of a space of legal plans.

    ``best_s``: the least step found in seconds, where plans whose layers differ were not searched.
    """
    left_out = (*_left_out(space, setting), *_left_out_ranges(space, setting, best_s))
    return SpaceValues(tuple(_searched(space)), left_out)


def _left_out_ranges(space: Space, setting: Setting, best_s: float | None) -> Iterator[LeftOutValues]:
    """Yield what may differ from layer to layer, with the most that it can gain, where the stack lets it differ."""
    varies = setting.free_by_layer
    if not varies:
        yield LeftOutValues(FIELD, ("by range",), setting.same_by_layer)
    elif best_s is not None:
        most = max(0.0, 1 - least_step_of_ranges(space, setting) / best_s)
        why = f"a step at most {most:.1%} shorter, by a lower bound; --layers ranges searches them"
        yield LeftOutValues(FIELD, tuple(f"{what} by range" for what in varies), why)


def _searched(space: Space) -> Iterator[SearchedValues]:
    base = space.base
    for name in NUMBERS:
        yield SearchedValues(name, tuple(np.unique(base.columns[name]).tolist()))
    used = np.unique(base.schedule).tolist()
    yield SearchedValues("schedule", tuple(str(base.schedules[code]) for code in used))
    yield SearchedValues("sharding", tuple(SHARDINGS[code] for code in np.unique(base.sharding)))
    gathers = tuple(GATHERS[code] for code in np.unique(base.gather) if GATHERS[code] != NEVER)
    yield SearchedValues("gather", gathers)
    for name in SEARCHED_CHOICES:
        values = base.values[name]
        yield SearchedValues(
            CHOICES[name].name, tuple(format_choice(values[code]) for code in _codes(space, name))
        )
    yield SearchedValues("stages", ("balanced",))


def _codes(space: Space, name: str) -> list[int]:
    """Return the codes of a choice that legal plans have."""
    if SEARCHED_CHOICES[name].later:
        return np.flatnonzero(space.later.legal.any(1)).tolist()
    return sorted(_codes_of_cells(space, name, space.legal))


def _codes_of_cells(space: Space, name: str, cells: Bools) -> set[int]:
    """Return the codes of a choice that plans of a mask have."""
    some = np.asarray(cells.any(1)).tolist()
    return {variant.codes.get(name, 0) for variant, has in zip(space.variants, some, strict=True) if has}


def _left_out(space: Space, setting: Setting) -> Iterator[LeftOutValues]:
    yield from _left_out_of_pipelines(space, setting)
    yield from _left_out_where_played(space)
    yield from _left_out_types(setting)
    stack, batch = setting.stack, setting.workload.global_batch
    if any(size > MAX_MICRO_BATCH for size in divisors(batch)):
        yield LeftOutValues("micro_batch", (f"above {MAX_MICRO_BATCH}",), "the space is bounded there")
    if setting.model.architecture.moe is not None:
        yield LeftOutValues("etp", ("beyond a scale-up domain",), "its exchanges would cross the network")
        yield LeftOutValues("expert_order", ("any",), "found for the best plans, where routing was counted")
    if stack.cp:
        yield LeftOutValues("context", ("contiguous pieces",), "they only make the last rank slower")
    yield LeftOutValues("node_order", ("any",), "found for the best plans, where links differ")
    orders = [",".join(order) for order in space.base.values["order"]]
    yield LeftOutValues(
        "rank_order", (f"other than {'; '.join(orders)}",), f"{stack.id} does not support them"
    )
    if stack.offloads_activations:
        yield LeftOutValues(
            "offload",
            ("other shares", "more than 2 passes ahead"),
            "--keep offload=SHARE,PASSES tries another",
        )
    yield from _left_out_shares(space, setting)


def _left_out_shares(space: Space, setting: Setting) -> Iterator[LeftOutValues]:
    """Yield the shares of states on the hosts that the stack has besides those of the question."""
    for column in HOST_COLUMNS:
        name = CHOICES[column].name
        searched = [format_choice(value) for value in space.base.values[column]]
        known = [way for way in setting.stack.state_offloads if way.has_part(name.rpartition(".")[2], 1.0)]
        if known:
            others = f"other than {', '.join(searched)}"
            yield LeftOutValues(name, (others,), f"--keep {name}=SHARE tries another")


def _left_out_types(setting: Setting) -> Iterator[LeftOutValues]:
    """Yield the element types that the stack has besides those of the question."""
    stack, precision = setting.stack, setting.workload.precision
    allowed = allowed_types(stack, precision)
    others = tuple(f"{key}: {word}" for key, words in allowed.items() for word in words[1:])
    if others:
        why = "narrower states change the loss, which is not predicted; --allow dtypes searches them"
        yield LeftOutValues("dtypes", others, why)


def _left_out_of_pipelines(space: Space, setting: Setting) -> Iterator[LeftOutValues]:
    stack, layers = setting.stack, setting.model.architecture.layers
    if not stack.pp:
        return
    ranks = [pp for pp in divisors(setting.cluster.devices) if pp <= layers]
    searched = {str(choice) for choice in space.base.schedules}
    others = tuple(str(choice) for choice in all_schedules(stack, ranks) if str(choice) not in searched)
    if others:
        yield LeftOutValues("schedule", others, AUTO)
    known = [choice.kind for choice in all_schedules(stack, ranks)]
    if "memory_limit" in stack.schedule_knobs:
        limits = ", ".join(f"{limit:g}" for limit in LIMITS)
        yield LeftOutValues("memory_limit", (f"other than {limits}",), "--keep memory_limit=X tries another")
    if "unit" in stack.schedule_knobs:
        yield LeftOutValues("unit", ("other than a few rounds",), "--keep unit=N tries another")
    if "in_flight" in stack.schedule_knobs:
        yield LeftOutValues("in_flight", ("any",), "--keep in_flight=N tries one")
    if stack.written_lists:
        yield LeftOutValues("file", ("lists of one's own",), "--schedule lists.csv, or --solve")
    if any(kind.chunked for kind in known):
        rule = f"stages of unequal shares of {layers} layers, with embedding and head or without"
        yield LeftOutValues("virtual_stages", (rule,), "ranks would wait for the longer ones")
    yield LeftOutValues(
        "stages", ("written out",), "--stages time or memory cuts those of the best plans again"
    )


def _left_out_where_played(space: Space) -> Iterator[LeftOutValues]:
    """Yield what plans that must be played were not tried with, if there are such plans."""
    cells = space.legal & ~has_closed_form(space)
    if not cells.any():
        return
    for name, choice in SEARCHED_CHOICES.items():
        if choice.played or choice.later:
            continue
        values = space.base.values[name]
        tried, every = _codes_of_cells(space, name, cells), _codes_of_cells(space, name, space.legal)
        missing = tuple(format_choice(values[code]) for code in sorted(every - tried))
        if missing:
            yield LeftOutValues(CHOICES[name].name, missing, PLAYED)
    missing_forms = _forms_not_played(space)
    if missing_forms:
        yield LeftOutValues("context", missing_forms, PLAYED)


def _forms_not_played(space: Space) -> tuple[str, ...]:
    """Return the forms of context parallelism that plans with closed forms alone were tried with."""
    formless = (space.legal & ~has_closed_form(space)).any(0)
    open_ = np.array([leaves_open(variant) for variant in space.variants], dtype=np.bool_)
    rows = formless & space.legal[open_].any(0)
    tried = np.asarray(space.later.legal[:, rows].any(1))
    missing = np.flatnonzero(space.later.legal.any(1) & ~tried).tolist()
    return tuple(format_choice(space.base.values[space.later.column][code]) for code in missing)
