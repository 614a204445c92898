"""Captions of a picture: a description for readers who do not see it, and notes on omissions."""

from collections.abc import Iterator, Sequence

from meshwright.schedules.picture.message_lines import MAX_MESSAGES
from meshwright.schedules.picture.panel import Panel
from meshwright.schedules.picture.svg_elements import amount
from meshwright.schedules.picture.time_axis import Axis


def description(panel: Panel) -> str:
    """One schedule in one sentence."""
    peaks = ", ".join(amount(round(curve.peak, 2)) for curve in panel.curves)
    name = f"{panel.title}: " if panel.title else ""
    return (
        f"{name}{panel.actions:,} actions on {panel.ranks:,} pipeline ranks from time {amount(panel.begin)} to "
        f"{amount(panel.end)}. Peaks of activations held, rank by rank: {peaks}."
    )


def notes(panels: Sequence[Panel], axis: Axis, sent: int) -> Iterator[str]:
    """Yield a sentence for everything that is not drawn; ``sent`` is the number of messages."""
    gaps = [f"{amount(low)} to {amount(high)}" for (low, high), _ in axis.breaks]
    if gaps:
        actions = sum(panel.actions for panel in panels)
        yield f"{actions:,} actions are too many to draw. Left out, at the dotted lines: time {', '.join(gaps)}."
    if sent > MAX_MESSAGES:
        yield f"{sent:,} messages are too many to draw."
