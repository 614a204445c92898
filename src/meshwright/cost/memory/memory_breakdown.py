"""The kinds of memory that a rank holds, their sum, and whether it fits.

parameters, gradients, optimizer  states (``program/model_states/``); these twice where copies can undo a step
activations  Σ over stages of micro-batches in flight × bytes kept (schedule's lists × ``program/activation_bytes.py``)
working      what recomputation brings back for one block, beyond what is free by then (``backward_peak.py``)
buffers      parameters and gradients that are whole for a while (``zero_unsharded_buffers.py``)
workspace    a constant for context and libraries

A plan fits when the sum is below ``usable_memory`` of the capacity: allocators fragment and reserve. Ignored: peaks
between passes inside one kernel, communication buffers of the libraries.
"""

from collections.abc import Mapping

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.constants import constant_on
from meshwright.program.local_shape import Number

KEYS = ("parameters", "gradients", "optimizer", "activations", "working", "buffers", "workspace")

Ledger = Mapping[str, Number]


def total_bytes(ledger: Ledger) -> Number:
    """Sum of a ledger's entries."""
    return sum((ledger[key] for key in KEYS), start=0)


def workspace_bytes(cluster: Cluster) -> float:
    """Return the bytes of the context and the libraries' workspaces."""
    return constant_on(cluster, "workspace_bytes")


def usable_device_bytes(cluster: Cluster, capacity_bytes: int | None = None) -> float:
    """Return the usable memory of a device in bytes; ``capacity_bytes``: of a device with other memory."""
    capacity = cluster.pool.device.memory_bytes if capacity_bytes is None else capacity_bytes
    return constant_on(cluster, "usable_memory") * capacity


def fits(total: Number, cluster: Cluster, capacity_bytes: int | None = None) -> Number:
    """Return true where the peak is within the usable memory of a device, of ``capacity_bytes`` if given."""
    return np.asarray(total) <= usable_device_bytes(cluster, capacity_bytes)


def fits_host_memory(on_host_bytes: Number, cluster: Cluster, capacity_bytes: float) -> Number:
    """Return true where offloaded activations stay within their usual share of a host's ``capacity_bytes``."""
    return np.asarray(on_host_bytes) <= constant_on(cluster, "usable_host_memory") * capacity_bytes
