"""Price model states on the host: copies that overlap passes, and the step of host and device.

A pass of c seconds that copies o seconds to the host, b seconds back and has the host add gradients up for h seconds
takes max(c, o, b, h): the directions of the link overlap each other and compute, block by block. The step takes as long
as the slower side: the device steps on what it has, while gradients that are still there go out, and then the host
steps and parameters come back, tile by tile. The host moves as many bytes as a device would, at
``host_memory_efficiency`` of its memory's bandwidth, of which each device that computes has an equal part. Ignored: the
blocks at either end of a pass whose copies overlap nothing of it, copies of activations on the same link, arithmetic on
the host, and that weights fetched for a pass follow the last step.
"""

import numpy as np

from meshwright.cost.closed_form.overlap_and_optimizer import optimizer_bytes_moved, optimizer_seconds
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.pipeline_time.offload_copies import copy_seconds
from meshwright.program.local_shape import Number
from meshwright.program.model_states.state_elements import bytes_per_element
from meshwright.program.model_states.states_on_host import HostStates, PassCopies


def host_seconds(moved_bytes: Number, forms: HardwareTimes) -> Number:
    """Seconds in which a device's part of its host moves bytes through memory."""
    assert forms.host_memory_bytes_per_s, "plans with an optimizer on the host want its memory's bandwidth"
    return moved_bytes / (forms.constants["host_memory_efficiency"] * forms.host_memory_bytes_per_s)


def exposed_copies(copies: PassCopies, compute: Number, forms: HardwareTimes) -> Number:
    """Return the seconds by which copies make a pass of ``compute`` seconds longer."""
    directions = np.maximum(copy_seconds(copies.out_bytes, forms), copy_seconds(copies.back_bytes, forms))
    if np.any(copies.host_bytes):
        directions = np.maximum(directions, host_seconds(copies.host_bytes, forms))
    return np.maximum(0.0, directions - compute)


def step_seconds(owned: Number, states: HostStates, forms: HardwareTimes) -> Number:
    """Return the optimizer step of a rank with ``owned`` elements, on its device and its host."""
    stack, here = states.stack, states.on_host("optimizer", owned)
    device = optimizer_seconds(owned - here, stack, forms)
    if not states.shares.some:
        return device
    copies = states.step_copies(owned)
    left = bytes_per_element("gradient", stack) * (here - states.on_host("gradient", owned))
    copied = copy_seconds(copies.out_bytes - left + copies.back_bytes, forms)
    if not states.shares.optimizer:
        return device + copied
    sent = copy_seconds(left, forms)
    stepped = host_seconds(optimizer_bytes_moved(here, stack, forms), forms)
    return np.maximum(device, forms.constants["step_fixed_s"] + sent + np.maximum(stepped, copied))
