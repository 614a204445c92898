"""Legal layouts of one replica as arrays; every layout that is refused counts for its first broken rule.

Degrees are powers of two and divisors of the cluster's devices, so that every layout for G devices is one for k·G.
``RULES`` is the table of rules; each says which rows of degrees it allows. The laws on widths, experts and stages are
those of a plan in a file (``plans/serving/rules``).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.model.architecture import Architecture
from meshwright.plans.rules.degrees import expert_width_problems, width_problems

NAMES = ("attention_dp", "tp", "pp", "ep", "etp")

Rows = Mapping[str, NDArray[np.int64]]
Allowed = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """A rule of the search: what a refused layout breaks, and the rows that are allowed."""

    reason: str
    allowed: Callable[[Rows, Architecture], Allowed]


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaLayouts:
    """Layouts of a replica, a row each. ``refused``: the layouts that each rule cut."""

    table: NDArray[np.int64]
    considered: int
    refused: Mapping[str, int]

    def __len__(self) -> int:
        """Return the number of layouts."""
        return len(self.table)

    @property
    def devices(self) -> NDArray[np.int64]:
        """Devices of a replica of each layout."""
        found: NDArray[np.int64] = self.table[:, :3].prod(axis=1)
        return found


def degrees_to(devices: int) -> tuple[int, ...]:
    """Return the powers of two up to ``devices`` and its divisors."""
    powers = {2**power for power in range(devices.bit_length())}
    divisors = {size for size in range(1, int(devices**0.5) + 1) if devices % size == 0}
    return tuple(sorted(powers | divisors | {devices // size for size in divisors}))


def replica_layouts(
    arch: Architecture, sizes: tuple[int, ...], more_rules: tuple[LayoutRule, ...] = ()
) -> ReplicaLayouts:
    """Return every legal layout on a cluster of at most the largest of ``sizes``, which all give degrees."""
    degrees = sorted({degree for size in sizes for degree in degrees_to(size)})
    table = _every_layout(max(sizes), degrees, experts=arch.moe is not None)
    considered, refused = len(table), Counter[str]()
    for rule in (*RULES, *more_rules):
        rows = dict(zip(NAMES, table.T, strict=True))
        allowed = rule.allowed(rows, arch)
        refused[rule.reason] += int(np.count_nonzero(~allowed))
        table = table[allowed]
    return ReplicaLayouts(table, considered, +refused)


def _every_layout(devices: int, sizes: Sequence[int], *, experts: bool) -> NDArray[np.int64]:
    """Return all products of degrees of at most ``devices``; experts cover the ranks of a stage."""
    found = [
        (rows, tp, pp, ep, rows * tp // ep)
        for tp in sizes
        for rows in sizes
        if tp * rows <= devices
        for pp in sizes
        if tp * rows * pp <= devices
        for ep in (sizes if experts else (1,))
        if not experts or rows * tp % ep == 0
    ]
    table = np.array(found, dtype=np.int64).reshape(-1, len(NAMES))
    if not experts:
        table[:, NAMES.index("etp")] = 1
    return table


def _where(column: NDArray[np.int64], broken: Callable[[int], bool]) -> Allowed:
    """Return the rows whose value breaks nothing; each value is asked once."""
    values, places = np.unique(column, return_inverse=True)
    return np.array([not broken(int(value)) for value in values], dtype=np.bool_)[places]


def _widths(rows: Rows, arch: Architecture) -> Allowed:
    return _where(rows["tp"], lambda tp: any(width_problems(arch, tp, "tp", copied_kv_heads=True)))


def _stages(rows: Rows, arch: Architecture) -> Allowed:
    return rows["pp"] <= arch.layers - arch.next_token_layers


def _experts(rows: Rows, arch: Architecture) -> Allowed:
    moe = arch.moe
    if moe is None:
        return np.ones(len(rows["ep"]), dtype=np.bool_)
    return _where(rows["ep"], lambda ep: any(expert_width_problems(moe, ep, 1, "", 1)))


def _expert_widths(rows: Rows, arch: Architecture) -> Allowed:
    moe = arch.moe
    if moe is None:
        return np.ones(len(rows["etp"]), dtype=np.bool_)
    return _where(rows["etp"], lambda etp: any(expert_width_problems(moe, 1, etp, "", 1)))


def _shared(rows: Rows, arch: Architecture) -> Allowed:
    return (rows["attention_dp"] == 1) | (arch.moe is not None)


RULES: tuple[LayoutRule, ...] = (
    LayoutRule("attention_dp of a dense model shares nothing: replicas are the same", _shared),
    LayoutRule("tp does not divide the model's heads and widths", _widths),
    LayoutRule("pp is more than the model's layers", _stages),
    LayoutRule("ep does not divide the experts", _experts),
    LayoutRule("etp does not divide the experts' width", _expert_widths),
)
