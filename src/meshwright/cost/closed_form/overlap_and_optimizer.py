"""Times of the actions around the schedule: optimizer, and what gathers and reductions expose.

A gather at the start overlaps the first forward passes: stage j waits for what is left of its own when its first
micro-batch arrives. ``play/overlap.py`` says how compute and what overlaps it slow each other down.
"""

import numpy as np

from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.play import overlap
from meshwright.play.clocks import Numbers
from meshwright.program.local_shape import Number
from meshwright.stack.stack import Stack

ARRAYS = Numbers(0.0, np.maximum, np.minimum)


def optimizer_seconds(owned: Number, stack: Stack, forms: HardwareTimes, matrices: Number = 0) -> Number:
    """One optimizer step over ``owned`` elements: gradient norm, update, cast back to the working precision.

    The constants are those of AdamW's fp32 states; a stack with narrower or fewer ones moves fewer bytes. ``matrices``
    are the elements beside these whose states are Muon's.
    """
    moved = optimizer_bytes_moved(owned, stack, forms, matrices)
    return forms.constants["step_fixed_s"] + forms.pass_(moved, "optimizer_efficiency")


def optimizer_bytes_moved(owned: Number, stack: Stack, forms: HardwareTimes, matrices: Number = 0) -> Number:
    """Return the bytes that an optimizer step over ``owned`` elements moves through memory."""
    c = forms.constants
    of_all = c["optimizer_bytes"] + c["gradient_norm_bytes"]
    of_matrices = matrices * (of_all + stack.matrix_traffic_bytes)
    return owned * (of_all + stack.optimizer_traffic_bytes) + of_matrices


def send_occupancy(chunked: bool, overlaps: bool, forms: HardwareTimes) -> float:
    """Return the part of a message's time that blocks the sender's compute stream: 1, or the overlap slow-down.

    Schedules with one stage per rank send and receive before they go on (Megatron-LM's non-interleaved 1F1B);
    interleaved ones overlap sends with compute where the stack can.
    """
    return overlap.occupied_part(chunked and overlaps, forms.constants["overlap_slowdown"])


def during_gather(compute: Number, left: Number, forms: HardwareTimes) -> Number:
    """Length of a forward pass that starts while ``left`` seconds of its own gather remain."""
    return overlap.during_gather(compute, left, forms.constants["overlap_slowdown"], ARRAYS)


def reduction_slowdown(reduction: Number, backward: Number, units: Number, forms: HardwareTimes) -> Number:
    """Return the seconds by which an overlapping reduction slows the last backward pass of ``units`` blocks."""
    slowdown = forms.constants["overlap_slowdown"]
    return overlap.reduction_slowdown(reduction, backward, units, slowdown, ARRAYS)


def reduction_tail(
    reduction: Number, backward: Number, units: Number, forms: HardwareTimes, ahead: Number = 0.0
) -> Number:
    """Return the seconds of a reduction that remain when the slowed-down backward pass has ended.

    It begins when the first of the blocks is done, or ``ahead`` seconds into the pass if it has to wait for another.
    """
    length = backward + reduction_slowdown(reduction, backward, units, forms)
    return overlap.reduction_tail(reduction, backward, length, units, ahead, ARRAYS)
