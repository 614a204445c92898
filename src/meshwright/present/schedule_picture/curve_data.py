"""Compute the memory of a rank over time as the points of a curve."""

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.play.in_flight import OF_STAGES
from meshwright.schedules.action import Action


@dataclass(frozen=True, slots=True)
class Curve:
    """Steps: from ``times[i]`` on a rank holds ``held[i]``; before the first it holds nothing."""

    times: tuple[float, ...]
    held: tuple[float, ...]

    @property
    def peak(self) -> float:
        """The most that is held."""
        return max(self.held, default=0.0)

    @property
    def peak_time(self) -> float:
        """Return the first time of the peak."""
        return self.times[self.held.index(self.peak)] if self.held else 0.0


def curve_of(
    actions: Sequence[Action], start: Sequence[float], end: Sequence[float], levels: Sequence[float]
) -> Curve:
    """Return the curve of a rank that holds ``levels`` after its actions."""
    played = zip(actions, start, end, levels, strict=True)
    steps = [(s if a.kind == "F" else e, level) for a, s, e, level in played if a.kind in OF_STAGES]
    return Curve(tuple(float(time) for time, _ in steps), tuple(level for _, level in steps))
