"""Lower bounds of the plans of many clusters, computed at once for clusters that differ only in size.

Devices of a size price a plan alike, except that a step waits for the slowest one, of which more devices have a slower
one (``setting_hardware_times``). So plans of all sizes are enumerated and bounded together, in arrays of millions
instead of thousands of rows: most of the time of a short array goes into its fixed costs. Of each cluster the ``KEPT``
plans with the least bounds are remembered for its search.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.fast_domains import usable_domain
from meshwright.cost.operators.price_plans import fabric_of
from meshwright.plans.setting import Setting
from meshwright.search.space.legal_plans import raw_plans
from meshwright.search.space.plan_space import Space
from meshwright.verbs.plan.search_space import (
    Scope,
    has_closed_form,
    searched_schedules,
    searched_space,
    space_bounds,
    usable_bytes,
    without_slower_context_forms,
)

KEPT = 2**12
NO_BOUND_S = 0.0
MOST_RAW_PLANS = 2**29
"""Raw plans, legal or not, that are enumerated at once: arrays of them take about a gigabyte."""
Question = tuple[Scope, Setting]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Done = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class ClusterBounds:
    """The plans of one cluster that may be its best, with lower bounds.

    No plan that may fit takes less than ``least_s``: infinite where none may, 0 where no bound is known, None: none is
    legal. Plan i is that of ``rows[i]``, variant by variant, of a space with all base plans in question. Of those that
    are left out none takes less than ``others_s``.
    """

    least_s: float | None
    space: Space
    rows: Ints
    floors: Floats
    others_s: float = inf

    @property
    def known(self) -> bool:
        """Plans have closed forms, and so bounds."""
        return self.least_s != NO_BOUND_S


def bound_clusters(
    questions: Sequence[Question], done: Done = lambda part: None, kept: int | None = KEPT
) -> list[ClusterBounds]:
    """Return the bounds of each cluster. ``done`` is called with the finished part of them, from 0 to 1.

    ``kept`` plans of each are remembered; None: all.
    """
    found: dict[int, ClusterBounds] = {}
    for together in question_groups(questions):

        def part(of_these: float, before: int = len(found), size: int = len(together)) -> None:
            done((before + of_these * size) / len(questions))

        found |= zip(together, _bound_sizes([questions[i] for i in together], part, kept), strict=True)
    return [found[index] for index in range(len(questions))]


def question_groups(questions: Sequence[Question]) -> Iterator[list[int]]:
    """Yield the places of questions that differ only in devices and batch, in parts that are enumerated at once."""
    families: list[tuple[tuple[Any, ...], list[int]]] = []
    for index, (scope, setting) in enumerate(questions):
        key = _family(scope, setting)
        same = next((places for known, places in families if key is not None and known == key), None)
        if same is None:
            families.append((key or (), [index]))
        else:
            same.append(index)
    for _, places in families:
        batch: list[int] = []
        raw = 0
        for index in places:
            scope, setting = questions[index]
            more = raw_plans(setting, scope.keep, searched_schedules(scope, setting))
            if batch and raw + more > MOST_RAW_PLANS:
                yield batch
                batch, raw = [], 0
            batch.append(index)
            raw += more
        yield batch


def _family(scope: Scope, setting: Setting) -> tuple[Any, ...] | None:
    """Return a key that questions share if they differ in nothing but devices and batch that prices depend on.

    None: where links differ each cluster is alone.
    """
    cluster = setting.cluster
    fabric = fabric_of(cluster)
    if cluster.links is not None or (fabric is not None and not fabric.alike) or len(cluster.pools) != 1:
        return None
    pool = cluster.pool
    sized = replace(
        cluster,
        name="",
        pools=(replace(pool, name="", count=0, usd_per_device_hour=None),),
        failures_per_1000_node_days=None,
    )
    workload = replace(setting.workload, global_batch=1)
    shared = (id(setting.model), workload, id(setting.stack), scope, sized)
    return (*shared, usable_domain(pool), pool.devices_of_host, searched_schedules(scope, setting))


def largest_of(questions: Sequence[Question]) -> Question:
    """Return the question with the most devices."""
    return max(questions, key=lambda question: question[1].cluster.devices)


def space_of_questions(questions: Sequence[Question]) -> Space:
    """Return the space of questions that differ only in devices and batch, all in one."""
    scope, setting = largest_of(questions)
    pairs = dict.fromkeys((one.cluster.devices, one.workload.global_batch) for _, one in questions)
    sizes, batches = zip(*pairs, strict=True)
    return searched_space(scope, setting, sizes, batches if len(set(batches)) > 1 else ())


def _bound_sizes(questions: Sequence[Question], done: Done, kept: int | None) -> Iterator[ClusterBounds]:
    """Yield the bounds of questions that differ only in devices and batch."""
    _, setting = largest_of(questions)
    whole = space_of_questions(questions)
    whole = without_slower_context_forms(whole, setting)
    has_floors = whole.legal <= has_closed_form(whole)
    formless = np.isin(whole.base.devices, whole.base.devices[~has_floors.all(0)])
    space = whole.where(~formless) if formless.any() else whole
    floors = _floors(space, setting, done)
    nowhere = np.zeros(0, dtype=np.int64)
    nothing = space.where(nowhere)
    for _, own in questions:
        rows = np.flatnonzero(space.rows_of(own.cluster.devices, own.workload.computed_sequences))
        if len(rows) and space.legal[:, rows].any():
            yield _of_rows(space, floors, rows, kept)
        else:
            unknown = whole.rows_of(own.cluster.devices, own.workload.computed_sequences) & formless
            known = NO_BOUND_S if unknown.any() else None
            yield ClusterBounds(known, nothing, nowhere, np.zeros(0))


def _of_rows(space: Space, floors: Floats, rows: Ints, most: int | None) -> ClusterBounds:
    """Return the bounds of the cluster that some base plans fill."""
    of_cluster = floors[:, rows].reshape(-1)
    kept = np.flatnonzero(np.isfinite(of_cluster))
    least, others = float(of_cluster.min()), inf
    if most is not None and len(kept) > most:
        worst = np.partition(of_cluster[kept], most - 1)[most - 1]
        inside = of_cluster[kept] <= worst
        others = float(of_cluster[kept[~inside]].min(initial=inf))
        kept = kept[inside]
    variants, bases = np.divmod(kept, len(rows))
    used, place = np.unique(bases, return_inverse=True)
    own = space.of_one(rows[used])
    return ClusterBounds(least, own, variants * len(used) + place, of_cluster[kept], others)


def _floors(space: Space, setting: Setting, done: Done) -> Floats:
    """Seconds that a step is no shorter than, infinite for plans that can not fit: (variants, n)."""
    floors, usable = np.full(space.legal.shape, inf), usable_bytes(setting)
    if not len(space.base):
        done(1.0)
        return floors
    bounds = space_bounds(space, setting, usable)
    for code, (row, legal, found) in enumerate(zip(floors, space.legal, bounds, strict=True)):
        fits = legal & (found.total_bytes <= usable)
        row[fits] = found.step_s[fits]
        done((code + 1) / len(floors))
    return floors
