"""Pictures of pipeline schedules: who does what when, and what every rank holds meanwhile."""

from meshwright.schedules.picture.panel import Panel, Style
from meshwright.schedules.picture.svg_document import schedule_svg, schedules_svg

__all__ = ["Panel", "Style", "schedule_svg", "schedules_svg"]
