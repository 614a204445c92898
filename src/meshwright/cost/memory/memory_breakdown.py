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

from meshwright.cost.constants import constants
from meshwright.program.local_shape import Number

KEYS = ("parameters", "gradients", "optimizer", "activations", "working", "buffers", "workspace")

Ledger = Mapping[str, Number]


def total_bytes(ledger: Ledger) -> Number:
    """Sum of a ledger's entries."""
    return sum((ledger[key] for key in KEYS), start=0)


def workspace_bytes() -> float:
    """Context, libraries' workspaces."""
    return constants()["workspace_bytes"]


def fits(total: Number, capacity_bytes: float) -> Number:
    """Return true where the peak is within the usable part of the capacity."""
    return np.asarray(total) <= constants()["usable_memory"] * capacity_bytes


def fits_host_memory(on_host_bytes: Number, capacity_bytes: float) -> Number:
    """Return true where offloaded activations stay within their usual share of host memory."""
    return np.asarray(on_host_bytes) <= constants()["usable_host_memory"] * capacity_bytes
