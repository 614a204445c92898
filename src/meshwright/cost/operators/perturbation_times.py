"""Seconds of passes over parameters that add noise to them, in a step without backward passes.

A pass reads and writes each parameter, or a master copy where there is one, and makes a normal number for each
element: Philox with ten rounds and Box–Muller are about 55 instructions, which take as long as ``NOISE_BYTES`` more (11
bytes of an A100's memory, 5 of an H100's; a guess, measured nowhere). The update is such a pass too, and moves
parameters back to where they were. Of parameters on the host only a copy moves, that which a pass has fetched, while
the next block is fetched; the update takes them through the device once, both ways at a time.
"""

import numpy as np

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.program.local_shape import Number
from meshwright.program.model_states.states_on_host import HostStates
from meshwright.stack.stack import Stack

NOISE_BYTES = 8
"""Bytes that a device moves in the time in which it makes one normal number."""


def perturbation_seconds(
    held: Number, stack: Stack, forms: HardwareTimes, states: HostStates | None
) -> Number:
    """Return the seconds of a rank that moves its ``held`` elements of parameters to another point."""
    here = held if states is None else held - states.on_host("parameter", held)
    return forms.pass_((_moved_bytes(stack) + NOISE_BYTES) * here, "optimizer_efficiency")


def update_seconds(held: Number, stack: Stack, forms: HardwareTimes, states: HostStates | None) -> Number:
    """Return the seconds of a rank that moves its parameters back and adds the update."""
    seconds = perturbation_seconds(held, stack, forms, states)
    if states is not None:
        away = states.on_host("parameter", held)
        seconds = np.maximum(seconds, copy_seconds(stack.parameter_bytes * away, forms))
    return forms.constants["step_fixed_s"] + seconds


def _moved_bytes(stack: Stack) -> int:
    """Return the bytes moved for an element: a parameter with a master copy is only written."""
    master = stack.optimizer_bytes
    return 2 * master + stack.parameter_bytes if master else 2 * stack.parameter_bytes
