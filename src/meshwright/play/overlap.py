"""Formulas of how much exchanges slow down the compute that they overlap; times are floats or arrays.

``slowdown`` is the part of an overlapped exchange's time by which compute gets longer. A reduction begins when the
first of a stage's blocks has its gradients, runs beside the rest of that backward pass, and leaves at least 1/blocks of
itself behind it. A message or an exchange between ranks keeps its rank for all of its time, or for as long as it slows
compute down.
"""

from typing import Any

from meshwright.play.clocks import Numbers


def during_exchange(compute: Any, left: Any, slowdown: float, numbers: Numbers) -> Any:
    """Return the length of a pass that overlaps ``left`` seconds of exchanges of units."""
    return compute + slowdown * numbers.smaller(compute, left)


def during_gather(compute: Any, left: Any, slowdown: float, numbers: Numbers) -> Any:
    """Return the length of a forward pass that starts while ``left`` seconds of its own gather remain."""
    return numbers.larger(compute + slowdown * left, left)


def reduction_slowdown(reduction: Any, backward: Any, blocks: Any, slowdown: float, numbers: Numbers) -> Any:
    """Return the seconds by which an overlapped reduction slows the last backward pass over so many blocks."""
    return slowdown * numbers.smaller(reduction, backward * (blocks - 1) / blocks)


def reduction_tail(
    reduction: Any, backward: Any, length: Any, blocks: Any, ahead: Any, numbers: Numbers
) -> Any:
    """Return the seconds of a reduction that remain when its pass has ended, which it made ``length`` seconds long.

    It begins when the first of the blocks is done, or ``ahead`` seconds into the pass if it waits for another.
    """
    return numbers.larger(reduction / blocks, numbers.larger(backward / blocks, ahead) + reduction - length)


def occupied_part(overlaps: bool, slowdown: float) -> float:
    """Return the part of a message's time that blocks its sender: all, or the slow-down where it overlaps compute."""
    return slowdown if overlaps else 1.0
