"""What a picture says of itself: a description for those who do not see it, and notes on what it leaves out."""

from collections.abc import Iterator, Sequence

from meshwright.schedule.picture.axis import Axis
from meshwright.schedule.picture.elements import amount
from meshwright.schedule.picture.messages import MAX_MESSAGES
from meshwright.schedule.picture.panel import Panel


def description(panel: Panel) -> str:
    """One schedule in one sentence."""
    peaks = ", ".join(amount(round(curve.peak, 2)) for curve in panel.curves)
    name = f"{panel.title}: " if panel.title else ""
    return (
        f"{name}{panel.actions:,} actions on {panel.ranks:,} pipeline ranks from time {amount(panel.begin)} to "
        f"{amount(panel.end)}. Peaks of activations held, rank by rank: {peaks}."
    )


def notes(panels: Sequence[Panel], axis: Axis, sent: int) -> Iterator[str]:
    """A sentence for everything that is not drawn; ``sent`` messages were to be."""
    gaps = [f"{amount(low)} to {amount(high)}" for (low, high), _ in axis.breaks]
    if gaps:
        actions = sum(panel.actions for panel in panels)
        yield f"{actions:,} actions are too many to draw. Left out, at the dotted lines: time {', '.join(gaps)}."
    if sent > MAX_MESSAGES:
        yield f"{sent:,} messages are too many to draw."
