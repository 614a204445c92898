"""Measurements as columns, and what the form of collectives (``cost/forms.py``) says of them under given constants.

The size of nccl-tests is the form's logical bytes: everything that is reduced, gathered or scattered, and what one rank
sends in an all-to-all. Plateaus that belong to faster links than a node has are scaled once, at the beginning, as the
form does, so that a fitted plateau is that of the very node. Processes with one device each pay
``multi_process_latency_s``; a process that drives all devices of its host does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.graph import Cluster, Pool
from meshwright.cost.constants import Curve
from meshwright.cost.forms import Forms, forms_for
from meshwright.import_.nccl_tests_rows import Measurement
from meshwright.import_.nccl_tests_solver import Floats

PROCESS_LATENCY = "multi_process_latency_s"
CURVE_FIELDS = frozenset(field.name for field in fields(Curve))
CURVES: Mapping[str, str] = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "all_gather",
    "all-to-all": "all_gather",
}
"""The curve of ``Kernels`` that a collective follows inside a fast domain."""
MESSAGE = "send-receive"


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements as columns. ``local``: members of a group in one fast domain; ``alone``: a device per process."""

    kind: NDArray[np.str_]
    size: Floats
    ranks: Floats
    local: Floats
    alone: NDArray[np.bool_]
    seconds: Floats

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Sample":
        """Some of the measurements."""
        return Sample(
            self.kind[rows],
            self.size[rows],
            self.ranks[rows],
            self.local[rows],
            self.alone[rows],
            self.seconds[rows],
        )

    @property
    def crosses(self) -> NDArray[np.bool_]:
        """Whether the collective leaves the fast domain."""
        return self.local < self.ranks

    @property
    def largest(self) -> "Sample":
        """The largest measurement of each kind and number of ranks."""
        order = np.lexsort((self.size, self.ranks, self.kind))
        names = [f"{self.kind[row]} {self.ranks[row]}" for row in order]
        last = dict(zip(names, order.tolist(), strict=True))
        return self.take(np.array(list(last.values()), np.int64))

    def __len__(self) -> int:
        return len(self.size)


def sample_of(records: Sequence[Measurement], pool: Pool) -> Sample:
    """Columns of measurements on nodes of a pool."""
    return Sample(
        np.array([record.collective for record in records], np.str_),
        np.array([record.bytes for record in records], np.float64),
        np.array([record.ranks for record in records], np.float64),
        np.array([_local(record, pool) for record in records], np.float64),
        np.array([record.processes in (None, record.ranks) for record in records], np.bool_),
        np.array([record.seconds for record in records], np.float64),
    )


def _local(record: Measurement, pool: Pool) -> int:
    """Members in one fast domain, which may hold several hosts."""
    nodes = min(record.nodes or ceil(record.ranks / pool.node.devices), record.ranks)
    hosts = max(1, pool.node.scaleup_domain // pool.node.devices)
    return min(record.ranks, max(1, record.ranks // nodes) * hosts)


def present_forms(cluster: Cluster) -> Forms:
    """The forms of a cluster's pool, with plateaus of its own links."""
    forms = forms_for(cluster.pool, "bf16", dict(cluster.calibration))
    share = min(1.0, forms.scaleup_bytes_per_s / forms.kernels.measured_scaleup_bytes_per_s)
    kernels = replace(forms.kernels, measured_scaleup_bytes_per_s=forms.scaleup_bytes_per_s)
    forms = replace(forms, kernels=kernels)
    for name in ("all_reduce", "all_gather"):
        plateau = getattr(kernels, name).bandwidth_bytes_per_s * share
        forms = changed(forms, {"bandwidth_bytes_per_s": plateau}, name)
    return forms


def changed(forms: Forms, values: Mapping[str, float], *curves: str) -> Forms:
    """Forms with other values of constants, and of fields of some curves."""
    of_curve = {name: value for name, value in values.items() if name in CURVE_FIELDS}
    others = {name: value for name, value in values.items() if name not in CURVE_FIELDS}

    def curve(name: str) -> Curve:
        present: Curve = getattr(forms.kernels, name)
        return replace(present, **of_curve) if name in curves else present

    kernels = replace(forms.kernels, all_reduce=curve("all_reduce"), all_gather=curve("all_gather"))
    return replace(forms, kernels=kernels, constants={**forms.constants, **others})


def form_seconds(forms: Forms, sample: Sample) -> Floats:
    """What the form says of each measurement."""
    together = changed(forms, {PROCESS_LATENCY: 0.0})
    seconds = np.empty(len(sample))
    for kind in np.unique(sample.kind):
        rows = np.flatnonzero(sample.kind == kind)
        part = sample.take(rows)
        if kind == MESSAGE:
            seconds[rows] = forms.p2p(part.size, part.crosses)
        else:
            extra = np.where(part.alone, forms.constants[PROCESS_LATENCY], 0.0)
            seconds[rows] = together.collective(str(kind), part.size, part.ranks, part.local) + extra
    return seconds
