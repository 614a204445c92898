"""Measurements as columns, and the formula's times for them under given constants.

The formula is that of ``cost/operators/kernel_and_collective_times.py``. The size of nccl-tests is its logical bytes:
everything that is reduced, gathered or scattered, and what one rank sends in an all-to-all.
Processes with one device each pay ``multi_process_latency_s``; a process that drives all devices of its host does not.
Ranks are taken to fill the nodes, and nodes the groups of every tier, one after the other: a collective that fits in
one group of a tier is inside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster, Pool, Tier
from meshwright.cluster.fast_domains import node_devices
from meshwright.cost.constants import calibrated
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.ingestion.nccl_tests.least_squares import Floats
from meshwright.ingestion.nccl_tests.table import Measurement
from meshwright.program.layouts.node_hops import Fabric, Hops, Shape, hops_of

PROCESS_LATENCY = "multi_process_latency_s"
CURVE_OF: Mapping[str, str] = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "all_gather",
    "all-to-all": "all_gather",
}
"""The curve of ``Kernels`` that a collective follows inside a fast domain."""
MESSAGE = "send-receive"
SHAPES: Mapping[str, Shape] = {"all-to-all": "all", MESSAGE: "loop"}
"""How a collective goes from node to node, if not in rings."""


@dataclass(frozen=True, slots=True)
class MeasurementColumns:
    """Measurements as columns. ``local``: members of a group in one fast domain; ``alone``: one device per process.

    ``node``: devices of a node, as those count that the groups of a tier consist of.
    """

    kind: NDArray[np.str_]
    size: Floats
    ranks: Floats
    local: Floats
    alone: NDArray[np.bool_]
    seconds: Floats
    node: int

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "MeasurementColumns":
        """Select some of the measurements."""
        return MeasurementColumns(
            self.kind[rows],
            self.size[rows],
            self.ranks[rows],
            self.local[rows],
            self.alone[rows],
            self.seconds[rows],
            self.node,
        )

    @property
    def crosses(self) -> NDArray[np.bool_]:
        """True where the collective leaves the fast domain."""
        return self.local < self.ranks

    @property
    def largest(self) -> "MeasurementColumns":
        """The largest measurement of each kind and number of ranks."""
        order = np.lexsort((self.size, self.ranks, self.kind))
        names = [f"{self.kind[row]} {self.ranks[row]}" for row in order]
        last = dict(zip(names, order.tolist(), strict=True))
        return self.take(np.array(list(last.values()), np.int64))

    def __len__(self) -> int:
        return len(self.size)


def measurement_columns(records: Sequence[Measurement], pool: Pool) -> MeasurementColumns:
    """Return measurements on nodes of a pool as columns."""
    return MeasurementColumns(
        np.array([record.collective for record in records], np.str_),
        np.array([record.bytes for record in records], np.float64),
        np.array([record.ranks for record in records], np.float64),
        np.array([_local(record, pool) for record in records], np.float64),
        np.array([record.processes in (None, record.ranks) for record in records], np.bool_),
        np.array([record.seconds for record in records], np.float64),
        node_devices(pool),
    )


def _local(record: Measurement, pool: Pool) -> int:
    """Return the members in one fast domain, which may span several hosts."""
    nodes = min(record.nodes or ceil(record.ranks / pool.node.devices), record.ranks)
    hosts = max(1, pool.node.scaleup_domain // pool.node.devices)
    return min(record.ranks, max(1, record.ranks // nodes) * hosts)


def current_forms(cluster: Cluster) -> HardwareTimes:
    """Return the formulas of a cluster's pool and tiers, with what its file carries."""
    forms = hardware_times_for(cluster.pool, "bf16", dict(cluster.calibration))
    return replace(forms, tiers=cluster.tiers)


def changed(forms: HardwareTimes, values: Mapping[str, float]) -> HardwareTimes:
    """Return formulas with other values of constants, by the names of ``calibration`` in a cluster file."""
    kernels = calibrated(forms.kernels, values)
    return replace(forms, kernels=kernels, constants={**forms.constants, **values})


def form_seconds(forms: HardwareTimes, sample: MeasurementColumns) -> Floats:
    """Return the formula's time of each measurement."""
    together = changed(forms, {PROCESS_LATENCY: 0.0})
    seconds = np.empty(len(sample))
    for kind in np.unique(sample.kind):
        rows = np.flatnonzero(sample.kind == kind)
        part = sample.take(rows)
        if kind == MESSAGE:
            seconds[rows] = forms.p2p(part.size, part.crosses, congestion(forms.tiers, part))
        else:
            extra = np.where(part.alone, forms.constants[PROCESS_LATENCY], 0.0)
            slowdown = congestion(forms.tiers, part)
            kind_seconds = together.collective(
                str(kind), part.size, part.ranks, part.local, congestion=slowdown
            )
            seconds[rows] = kind_seconds + extra
    return seconds


def spans(tier: Tier, sample: MeasurementColumns) -> NDArray[np.bool_]:
    """Return true where a collective spans several groups of a tier."""
    last = np.ceil(sample.ranks / sample.local) - 1
    return last * np.maximum(sample.node, sample.local) >= tier.devices


def congestion(tiers: tuple[Tier, ...], sample: MeasurementColumns) -> Floats:
    """Return how many times longer the network takes than its cards alone, because of the tiers' uplinks."""
    result = np.ones(len(sample))
    for kind, ranks, local in set(
        zip(sample.kind.tolist(), sample.ranks.tolist(), sample.local.tolist(), strict=True)
    ):
        if tiers and local < ranks:
            rows = (sample.kind == kind) & (sample.ranks == ranks) & (sample.local == local)
            node = max(sample.node, int(local))
            hops = _hops(SHAPES.get(kind, "ring"), int(ranks), int(local), node)
            count = ceil(ranks / local)
            fabric = Fabric(np.broadcast_to(1.0, (count, count)), node, tiers)
            result[rows] = fabric.slowdowns(hops, np.arange(count)[None])[0]
    return result


@lru_cache(maxsize=64)
def _hops(shape: Shape, ranks: int, local: int, node: int) -> Hops:
    """Return the hops of a single group, ``local`` of its ranks on each node."""
    every = np.arange(ranks)
    return hops_of((every // local * node + every % local)[None], node, shape, local)
