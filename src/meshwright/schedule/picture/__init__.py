"""Pictures of pipeline schedules: who does what when, and what every rank holds meanwhile."""

from meshwright.schedule.picture.document import svg_of, svg_of_many
from meshwright.schedule.picture.panel import Panel, Style

__all__ = ["Panel", "Style", "svg_of", "svg_of_many"]
