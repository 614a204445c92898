"""Add the remaining time of a phase to its progress, by the pace since its first report."""

from collections.abc import Callable
from time import monotonic

LEAST_S, LEAST_PART = 1.0, 0.02
"""Until so much of a phase has passed and is finished its pace is not known."""
MINUTE_S = 60
Heard = Callable[[str, float], None]
"""Called with a description of the work and the finished part of it, from 0 to 1."""


def with_remaining_time(progress: Heard, clock: Callable[[], float] = monotonic) -> Heard:
    """Return the progress callback of one phase, whose texts end with the remaining time."""
    first: list[tuple[float, float]] = []

    def heard(what: str, part: float) -> None:
        now = clock()
        first.append((now, part))
        began, known = first[0]
        del first[1:]
        progress(what + remaining_text(now - began, part - known, 1 - part), part)

    return heard


def remaining_text(elapsed_s: float, finished: float, left: float) -> str:
    """Return in words how long what is left takes; nothing while that is not known."""
    if elapsed_s < LEAST_S or finished < LEAST_PART or left <= 0:
        return ""
    left_s = elapsed_s * left / finished
    if left_s >= 2 * MINUTE_S:
        return f"; about {left_s / MINUTE_S:.0f} min left"
    return f"; about {max(1, round(left_s))} s left"
