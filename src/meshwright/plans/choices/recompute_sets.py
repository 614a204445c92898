"""Sets of operators that a plan may run again in its backward pass.

All of them where there are few operators; else a chain in which each set adds the operator that takes the fewest FLOPs
of those that are left. Sets that run the same operators again are one, and a set of which the stack's kernels leave
nothing to run again is none.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from meshwright.model.operators.recompute_sets import SETS
from meshwright.model.transforms.norm_kernels import fused_sets
from meshwright.plans.rules.stack_support import recomputable
from meshwright.plans.setting import Setting

FEW = 3
"""Operators of which all sets are variants."""


def operator_sets(setting: Setting) -> tuple[tuple[str, ...], ...]:
    """Return the sets of operators that can be recomputed, without the one that ``selective`` means."""
    stack, model = setting.stack, setting.model
    fused = fused_sets(model, stack.norm_products)
    known = [
        name for name in recomputable(model.architecture) if name in stack.recomputes and name not in fused
    ]
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
