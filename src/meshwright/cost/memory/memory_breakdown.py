"""The memory ledger: the peak of each pipeline rank in bytes, by cause, from the Program.

static      parameters, gradients, optimizer states (the state table); these twice where copies can undo a step
activations Σ over stages of micro-batches in flight × bytes kept (schedule's lists × ``program/activation_bytes.py``)
working     what recomputation brings back for one block
buffers     parameters gathered from shards (two blocks per-layer, whole stages otherwise; 16 bit), and gradients
            that are whole until they are reduced: two blocks on their way where every micro-batch's are, all of a
            rank under zero2 and zero3 otherwise. Per unit: of both the stages that the list makes whole at once
            (``program/model_states/peak_unsharded_stages.py``)
workspace   a constant for context and libraries

A plan fits when the sum is below ``usable_memory`` of the capacity: allocators fragment and reserve. Ignored: peaks
between passes inside one kernel, communication buffers of the libraries.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.constants import constants
from meshwright.program.local_shape import Number
from meshwright.program.model_states.data_parallel_collectives import PARAMETER_WIRE_BYTES
from meshwright.program.model_states.state_bytes import Elements, bytes_per_element
from meshwright.stack.stack import Stack

KEYS = ("parameters", "gradients", "optimizer", "activations", "working", "buffers", "workspace")

Ledger = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class ZeroBufferRule:
    """The times at which sharded parameters and gradients are held whole."""

    sharding: str
    gather: str
    reduce: str = "per-step"

    @property
    def any(self) -> bool:
        """Anything is whole for a while."""
        return self.gather != "never" or self.gradients_are_whole or self.gradients_pass

    @property
    def gradients_are_whole(self) -> bool:
        """Sharded gradients are reduced only after the last micro-batch."""
        return self.sharding in ("zero2", "zero3") and self.reduce == "per-step"

    @property
    def by_unit(self) -> bool:
        """Whole stages come and go with each unit of micro-batches: ``unit_buffer_bytes``."""
        return self.gather == "per-unit"

    @property
    def gradients_pass(self) -> bool:
        """Gradients of a micro-batch are reduced block by block, and then added to what is kept."""
        return self.reduce == "per-micro-batch"

    @property
    def parameters_are_whole(self) -> bool:
        """Sharded parameters of a whole stage are gathered at once."""
        return self.gather in ("per-step", "per-micro-batch")


def buffer_bytes(rule: ZeroBufferRule, stage: Elements, largest_block: Elements, stack: Stack) -> Number:
    """Buffers of one stage (or of one rank, for all its stages together)."""
    whole, block = stage.count, largest_block.count
    trained, trained_block = stage.of("gradient").count, largest_block.of("gradient").count
    result: Number = 0
    if rule.parameters_are_whole:
        result = result + PARAMETER_WIRE_BYTES * whole
    if rule.gather == "per-layer":
        result = result + 2 * PARAMETER_WIRE_BYTES * block
    if rule.gradients_pass:
        result = result + 2 * stack.gradient_communication_bytes * trained_block
    if rule.gradients_are_whole:
        result = result + bytes_per_element("gradient", stack) * trained
    return result


def unit_buffer_bytes(parameters: Number, gradients: Number, stack: Stack) -> Number:
    """Buffers for so many elements of parameters and of gradients that are whole at once."""
    return PARAMETER_WIRE_BYTES * parameters + bytes_per_element("gradient", stack) * gradients


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
