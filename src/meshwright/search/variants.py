"""Variants of a plan: what it chooses beside its degrees, its schedule and its sharding.

A base plan says layout, micro-batch, schedule, experts' degrees and sharding. A variant says what runs again in the
backward pass, whether sequences are cut over tp between products (sequence parallelism), and in which order ranks are
numbered. The usual variants are the recomputations that have a name of their own, with sequence parallelism and the
default order; all variants have sets of operators and what else a stack leaves to a plan.

Sets of operators: all of them where there are few operators; else a chain in which each set adds the operator that
takes the fewest FLOPs of those that are left. Sets that run the same operators again are one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.model.recompute import SETS
from meshwright.plan.arrays import PlanArrays
from meshwright.plan.check_stack import recomputable
from meshwright.plan.setting import Setting
from meshwright.plan.short import DEFAULT_RANK_ORDER, Axis, Recompute, RecomputeName
from meshwright.search.wishes import Keep, Kept
from meshwright.search.wishes import asked as because

RECOMPUTES: tuple[RecomputeName, ...] = ("none", "selective", "full")
KEPT = ("recompute", "sequence_parallel", "rank_order")
"""What of variants a question can keep."""
COLUMNS = ("recompute", "sequence_parallel", "order")
"""The columns of plans that a variant decides."""
FEW = 3
"""Operators of which all sets are variants."""
AXES = DEFAULT_RANK_ORDER
Bools = NDArray[np.bool_]
Order = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """Codes of what runs again and of an order, in the space's tables; None: as the base plan has it."""

    recompute: int | None = None
    sequence_parallel: bool | None = None
    order: int | None = None

    def of(self, base: PlanArrays) -> dict[str, Any]:
        """The columns of base plans that it changes."""
        count = len(base)
        columns: dict[str, Any] = {}
        if self.recompute is not None:
            columns["recompute"] = np.full(count, self.recompute, dtype=np.int64)
        if self.sequence_parallel is not None:
            columns["sequence_parallel"] = (base.tp > 1) & self.sequence_parallel
        if self.order is not None:
            columns["order"] = np.full(count, self.order, dtype=np.int64)
        return columns


@dataclass(frozen=True, slots=True)
class Variants:
    """What plans of a space may choose; the first order is the default one."""

    recomputes: tuple[Recompute, ...]
    sequence_parallel: tuple[bool, ...] = (True,)
    orders: tuple[Order, ...] = (DEFAULT_RANK_ORDER,)

    @property
    def all(self) -> tuple[Variant, ...]:
        """Every combination; those that differ in their order stand together."""
        return tuple(
            Variant(recompute, cut, order)
            for cut in self.sequence_parallel
            for recompute in range(len(self.recomputes))
            for order in range(len(self.orders))
        )


def usual_variants(setting: Setting, keep: Keep) -> Variants:
    """Recomputations by name; and what a question keeps."""
    named = tuple(name for name in RECOMPUTES if name in setting.stack.recomputes)
    return _with_kept(Variants(named, (setting.stack.sequence_parallel,)), keep)


def all_variants(setting: Setting, keep: Keep) -> Variants:
    """All that the stack leaves to a plan."""
    stack = setting.stack
    usual = usual_variants(setting, {})
    found = Variants(
        (*usual.recomputes, *operator_sets(setting)),  # type: ignore[arg-type]
        (True, False) if stack.chooses_sequence_parallelism else usual.sequence_parallel,
        (DEFAULT_RANK_ORDER, *stack.rank_orders),  # type: ignore[arg-type]
    )
    return _with_kept(found, keep)


def _with_kept(variants: Variants, keep: Keep) -> Variants:
    """Variants, and among them what a question keeps."""
    recomputes, cut, orders = (
        tuple(dict.fromkeys((*known, *([keep[name]] if name in keep else []))))
        for name, known in zip(
            KEPT, (variants.recomputes, variants.sequence_parallel, variants.orders), strict=True
        )
    )
    return Variants(recomputes, cut, orders)  # type: ignore[arg-type]


def operator_sets(setting: Setting) -> tuple[tuple[str, ...], ...]:
    """Sets of operators that can be run again, without the one that ``selective`` means."""
    stack, model = setting.stack, setting.model
    known = [name for name in recomputable(model.architecture) if name in stack.recomputes]
    seen = {_operators(stack.selective_recompute)} if "selective" in stack.recomputes else set()
    found = []
    for names in _subsets(known) if len(known) <= FEW else _chain(known, setting):
        if _operators(names) not in seen:
            seen.add(_operators(names))
            found.append(names)
    return tuple(found)


def _operators(names: Iterable[str]) -> frozenset[str]:
    return frozenset(operator for name in names for operator in SETS[name])


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    for size in range(1, len(names) + 1):
        yield from combinations(names, size)


def _chain(names: list[str], setting: Setting) -> Iterator[tuple[str, ...]]:
    """Ever larger sets, the operators with the fewest FLOPs of a token first."""
    flops = dict.fromkeys(names, 0.0)
    for block in setting.model.blocks:
        for operator in block.operators:
            for name in set(operator.recompute) & set(names):
                flops[name] += operator.flops_per_token(setting.workload.seq_len / 2)
    ordered = sorted(names, key=lambda name: flops[name])
    for size in range(1, len(ordered) + 1):
        yield tuple(name for name in names if name in ordered[:size])


def are_usual(some: Iterable[Variant], base: PlanArrays, usual: Variants) -> Bools:
    """Which of some variants of base plans are usual ones."""

    def chosen(
        variant: Variant, recomputes: Sequence[Recompute], orders: Sequence[Order]
    ) -> tuple[object, ...]:
        return recomputes[variant.recompute or 0], variant.sequence_parallel, orders[variant.order or 0]

    known = {chosen(variant, usual.recomputes, usual.orders) for variant in usual.all}
    own = [chosen(variant, base.recomputes, base.rank_orders) for variant in some]
    return np.array([choice in known for choice in own], dtype=np.bool_)


@dataclass(frozen=True)
class Asked:
    """What rules look at: base plans, what is asked for, and all that variants may choose."""

    base: PlanArrays
    setting: Setting
    variants: Variants
    wishes: Callable[[str], Iterable[tuple[Kept, bool]]]


Rule = Callable[[Asked, Variant], Iterator[tuple[str, Bools]]]


def as_asked(asked: Asked, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """What the question fixes or forbids."""
    every = np.ones(len(asked.base), dtype=np.bool_)
    columns: dict[str, tuple[object, Bools]] = {
        "recompute": (asked.variants.recomputes[variant.recompute or 0], every),
        "rank_order": (asked.variants.orders[variant.order or 0], every),
        "sequence_parallel": (bool(variant.sequence_parallel), asked.base.tp > 1),
    }
    for name, (own, able) in columns.items():
        for value, wanted in asked.wishes(name):
            same = np.where(able, own == value, value is False)
            yield because(name, value, wanted=wanted), same == wanted


def can_be_run_again(asked: Asked, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """The stack runs it again, and the model has it."""
    chosen, stack = asked.variants.recomputes[variant.recompute or 0], asked.setting.stack
    names = (chosen,) if isinstance(chosen, str) else chosen
    have = recomputable(asked.setting.model.architecture)
    for name in names:
        if name not in stack.recomputes or (names is chosen and name not in have):
            whose = stack.id if name not in stack.recomputes else asked.setting.model.name
            yield f"{whose} has no recomputation of {name}", np.zeros(len(asked.base), dtype=np.bool_)


def sequences_are_cut(asked: Asked, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """Sequences can be cut over tp, or left whole."""
    base, seq_len = asked.base, asked.setting.workload.seq_len
    if variant.sequence_parallel:
        stack = asked.setting.stack
        yield f"{stack.id} has no sequence parallelism", (base.tp == 1) | stack.sequence_parallel
        whole = (base.tp == 1) | (seq_len % (base.cp * base.tp) == 0)
        yield f"cp·tp does not divide seq_len = {seq_len}", whole
        return
    if True in asked.variants.sequence_parallel:
        yield "equal to a plan with sequence parallelism: tp = 1", base.tp > 1
    if asked.setting.model.architecture.moe is not None:
        yield "experts with tp > 1 need sequence parallelism", base.tp == 1


def orders_differ(asked: Asked, variant: Variant) -> Iterator[tuple[str, Bools]]:
    """Orders turn ranks of degrees above 1, and leave those of a stage together where there are experts."""
    base, code, orders = asked.base, variant.order or 0, asked.variants.orders
    if code:
        above = sum((getattr(base, axis) > 1).astype(np.int64) << i for i, axis in enumerate(AXES))
        turned = [[_of_axes(order, which) for order in orders] for which in range(2 ** len(AXES))]
        new = np.array([rows[code] not in rows[:code] for rows in turned])
        yield "equal to a plan with another rank order", new[above]
    if asked.setting.model.architecture.moe is not None and orders[code][-1] != "pp":
        yield "the experts' mesh has pp last", base.pp == 1


def _of_axes(order: Order, which: int) -> Order:
    """The order of those axes whose bits are set."""
    return tuple(axis for axis in order if which >> AXES.index(axis) & 1)


RULES: tuple[Rule, ...] = (as_asked, can_be_run_again, sequences_are_cut, orders_differ)


def legal_variants(asked: Asked, rejected: Counter[str]) -> NDArray[np.bool_]:
    """Which variants are legal for which base plans: (variants, n); what a rule removes is counted."""
    legal = np.ones((len(asked.variants.all), len(asked.base)), dtype=np.bool_)
    for row, variant in zip(legal, asked.variants.all, strict=True):
        for rule in RULES:
            for reason, allowed in rule(asked, variant):
                removed = int((row & ~allowed).sum())
                if removed:
                    rejected[reason] += removed
                    row &= allowed
    return legal
