"""Pictures of pipeline schedules: a Gantt chart of all ranks, and each rank's memory."""

from meshwright.present.schedule_picture.panel import Panel, Style
from meshwright.present.schedule_picture.svg_document import schedule_svg, schedules_svg

__all__ = ["Panel", "Style", "schedule_svg", "schedules_svg"]
