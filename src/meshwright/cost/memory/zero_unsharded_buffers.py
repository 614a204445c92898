"""Memory of ZeRO-sharded parameters and gradients while a rank holds them unsharded.

Parameters gathered from shards are in 16 bit: two blocks per layer, whole stages otherwise. Gradients are whole until
they are reduced: two blocks on their way where those of every micro-batch are reduced, all of a rank under zero2 and
zero3 otherwise. Per unit: both of the stages that the list makes whole at once
(``program/model_states/peak_unsharded_stages.py``). The shards that a rank keeps are in
``program/model_states/zero_sharding.py``.
"""

from dataclasses import dataclass

from meshwright.program.local_shape import Number
from meshwright.program.model_states.data_parallel_collectives import PARAMETER_WIRE_BYTES
from meshwright.program.model_states.state_elements import Elements, bytes_per_element
from meshwright.stack.stack import Stack


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
