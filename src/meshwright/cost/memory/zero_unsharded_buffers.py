"""Memory of ZeRO-sharded parameters and gradients while a rank holds them unsharded.

Parameters gathered from shards are in 16 bit: block by block, one ahead, or whole stages. Gradients of every
micro-batch that are reduced as they come are whole in 16 bit until their block's backward pass ends; then they are
copied into the message that is reduced, which is freed behind the next block's backward pass (torch 2.13,
``FSDPParamGroup.post_backward``: one reduce-scatter input in flight). Reduced once a step, all of a rank's are whole
under zero2 and zero3. Per unit: both of the stages that the list makes whole at once
(``program/model_states/peak_unsharded_stages.py``). The shards that a rank keeps are in
``program/model_states/zero_sharding.py``; ``backward_peak.py`` finds the moment that counts.
"""

from dataclasses import dataclass

from meshwright.program.local_shape import Number
from meshwright.program.model_states.data_parallel_collectives import GATHERED_BYTES
from meshwright.program.model_states.state_elements import Elements, bytes_per_element
from meshwright.stack.stack import Stack

GRADIENT_BYTES = 2
"""An element of a gradient as a backward pass makes it."""


@dataclass(frozen=True, slots=True)
class ZeroBufferRule:
    """The times at which sharded parameters and gradients are held whole."""

    sharding: str
    gather: str
    reduce: str = "per-step"

    @property
    def gradients_are_whole(self) -> bool:
        """Sharded gradients are reduced only after the last micro-batch."""
        return self.sharding in ("zero2", "zero3") and self.reduce == "per-step"

    @property
    def by_unit(self) -> bool:
        """Whole stages come and go with each unit of micro-batches: ``unit_buffer_bytes``."""
        return self.gather == "per-unit"

    @property
    def by_layer(self) -> bool:
        """Parameters are gathered block by block."""
        return self.gather == "per-layer"

    @property
    def gradients_pass(self) -> bool:
        """Gradients of a micro-batch are reduced block by block, and then added to what is kept."""
        return self.reduce == "per-micro-batch"

    @property
    def parameters_are_whole(self) -> bool:
        """Sharded parameters of a whole stage are gathered at once."""
        return self.gather in ("per-step", "per-micro-batch")


def stage_buffer_bytes(rule: ZeroBufferRule, stage: Elements, stack: Stack) -> Number:
    """Bytes that are whole during all passes of one stage (or of one rank, for all its stages together)."""
    result: Number = 0
    if rule.parameters_are_whole:
        result = result + whole_parameter_bytes(stage)
    if rule.gradients_are_whole:
        gradient = stage.of("gradient")
        result = result + bytes_per_element("gradient", stack) * (gradient.count + gradient.own)
    return result


def whole_parameter_bytes(elements: Elements) -> Number:
    """Bytes of parameters that are gathered from shards: 16 bits each, or as they are stored."""
    return GATHERED_BYTES * elements.count + elements.packed.bytes


def gathered_bytes(rule: ZeroBufferRule, *blocks: Elements) -> Number:
    """Bytes of the parameters of blocks that are gathered at the same time."""
    return sum((whole_parameter_bytes(block) for block in blocks), start=0) if rule.by_layer else 0


def own_gradient_bytes(rule: ZeroBufferRule, block: Elements) -> Number:
    """Bytes of a block's gradients before they are reduced."""
    return GRADIENT_BYTES * block.of("gradient").count if rule.gradients_pass else 0


def message_bytes(rule: ZeroBufferRule, block: Elements, stack: Stack) -> Number:
    """Bytes of a block's gradients in the message that is reduced."""
    return stack.gradient_communication_bytes * block.of("gradient").count if rule.gradients_pass else 0


def unit_buffer_bytes(parameter_bytes: Number, gradients: Number, stack: Stack) -> Number:
    """Buffers for so many bytes of parameters and elements of gradients that are whole at once."""
    return parameter_bytes + bytes_per_element("gradient", stack) * gradients
