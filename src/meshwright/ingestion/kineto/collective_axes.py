"""Assign each collective of a trace to an axis of the plan.

Evidence, strongest first: the ranks of its group, the name that its framework gave the group, the size of the
group. Each narrows down what the previous one leaves open, and the kind of collective decides last: only experts and
contexts run all-to-all, only stages and contexts send to a neighbour. If two categories are left or none, the trace is
ambiguous, and the time goes to ``other communication``.

Names of groups: Megatron-LM's parallel_state.py (core 0.19) and torch's DeviceMesh, which calls the group of a
dimension ``mesh_`` + its name; the names are those of torchtitan's parallel_dims.py and of our own axes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from meshwright.cost.operators.pass_prices import CATEGORY
from meshwright.ingestion.kineto.rank_trace import Collective
from meshwright.program.layouts.rank_mesh import RankGrid

OTHER, WORLD = "other communication", "world"
ANY = frozenset({"tp", "cp", "ep", "pp", "dp"})
COMMUNICATIONS = ("tp", "cp", "ep", "pp", "dp", OTHER)

Axes = Mapping[str, Sequence[Sequence[int]]]
"""The groups of ranks of every axis, or of several axes joined by ``+``."""

JOINED = (
    ("tp", "cp"),
    ("etp", "ep"),
    ("cp", "dp_shard"),
    ("dp_shard", "dp_replicate"),
    ("cp", "dp_shard", "dp_replicate"),
    ("edp_shard", "edp_replicate"),
)
"""Axes that stacks communicate over together: sharded states over contexts, gradients over all data ranks."""

NAMES: Mapping[str, str] = {
    r"DATA_PARALLEL|OPTIMIZER_INSTANCE|DP_CP_GROUP|EMBEDDING_GROUP|^MODEL_PARALLEL_GROUP": "dp",
    r"EXPERT": "ep",
    r"PIPELINE": "pp",
    r"TENSOR": "tp",
    r"CONTEXT": "cp",
    r"^mesh_.*(dp|batch|loss)": "dp",
    r"^mesh_(ep|etp)$": "ep",
    r"^mesh_tp$": "tp",
    r"^mesh_cp$": "cp",
    r"^mesh_pp$": "pp",
}
"""Categories by patterns of group names; a tied embedding and the norm over a model's ranks count as data."""

KINDS: Mapping[str, frozenset[str]] = {
    "all-to-all": frozenset({"ep", "cp"}),
    "send-receive": frozenset({"pp", "cp"}),
    "exchange": frozenset({"pp", "ep", "cp"}),
    "all-reduce": frozenset({"tp", "dp", "ep"}),
    "all-gather": frozenset({"tp", "dp", "cp", "ep"}),
    "reduce-scatter": frozenset({"tp", "dp", "cp", "ep"}),
}
"""Possible categories of each kind of collective; a kind that is not listed may be any."""
MESSAGES = ("send-receive", "exchange")


def plan_axes(grids: Iterable[RankGrid]) -> Axes:
    """Return the rank groups of each axis with more than one rank, of the attention and expert meshes."""
    found: dict[str, tuple[tuple[int, ...], ...]] = {}
    for grid in grids:
        cut = {axis for axis in grid.order if grid.sizes[axis] > 1}
        joined = [axes for axes in JOINED if set(axes) <= cut]
        for axes in (*((axis,) for axis in grid.order if axis in cut), *joined):
            found["+".join(axes)] = tuple(tuple(group) for group in grid.groups(axes).tolist())
        if not any(len(groups[0]) == grid.ranks for groups in found.values()):
            found[WORLD] = (tuple(range(grid.ranks)),)
    return found


class GroupCategories:
    """Categories of collectives under a plan; without ``axes`` only the names of groups decide."""

    def __init__(self, axes: Axes | None) -> None:
        self.by_size: dict[int, dict[frozenset[int], set[str]]] = {}
        self.every: frozenset[str] = frozenset() if axes else ANY
        for name, groups in (axes or {}).items():
            last = name.split("+")[-1]
            category = CATEGORY.get(last, last)
            self.every |= {category} - {CATEGORY[WORLD]} if name == WORLD else {category}
            for group in groups:
                self.by_size.setdefault(len(group), {}).setdefault(frozenset(group), set()).add(category)

    def category(self, kind: str, collective: Collective) -> str:
        """Return the category, one of ``COMMUNICATIONS``, of a collective.

        ``kind`` is that of ``kernel_names.collective_kind``.
        """
        left = self._of_ranks(collective)
        left = left & _of_name(collective.description) or left
        allowed = left & KINDS.get(kind, left)
        if kind in MESSAGES:  # may use any group that contains both ranks, such as the world
            left = allowed or self.every & KINDS[kind]
        elif len(left) > 1:
            left = allowed
        return next(iter(left)) if len(left) == 1 else OTHER

    def _of_ranks(self, collective: Collective) -> frozenset[str]:
        """Return the categories of groups with the collective's ranks, or with its size if the ranks are not given."""
        size, ranks = collective.size or len(collective.ranks), frozenset(collective.ranks)
        if not size or not self.by_size:
            return self.every
        fitting = (categories for group, categories in self.by_size.get(size, {}).items() if ranks <= group)
        return frozenset[str]().union(*fitting) or ANY


@cache
def _of_name(description: str) -> frozenset[str]:
    """Return the category that a group's name implies; all categories if it implies none."""
    found = (category for name, category in NAMES.items() if re.search(name, description))
    return frozenset({next(found, "")} - {""}) or ANY
