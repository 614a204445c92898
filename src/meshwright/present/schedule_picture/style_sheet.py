"""The style sheet of a picture: plain rules, which every program that draws SVG understands.

Paper, ink and idle time have a light and a dark colour; the colours of actions are the same on both. A picture that
follows its reader turns dark on screens only: paper that is printed is white.
"""

from collections.abc import Iterable

from meshwright.present.schedule_picture.colour_conversion import ink_on
from meshwright.present.schedule_picture.palette import Tone
from meshwright.present.schedule_picture.panel import Scheme
from meshwright.present.svg import picture_colours

ROOT = "pipeline-schedule"
"""The class of the whole picture: its rules do not reach other pictures of a page."""
FONT = 'font-family:system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,"DejaVu Sans",sans-serif'

Colours = dict[str, str]
LIGHT: Colours = {
    **picture_colours.LIGHT,
    "idle": "#eceff2",
    "area": "#c3d0d6",
    "edge": "#47606b",
}
DARK: Colours = {
    **picture_colours.DARK,
    "idle": "#22272d",
    "area": "#3b4f59",
    "edge": "#9fb9c4",
}
RULES = {
    "paper": "fill:{paper}",
    "ink": "fill:{ink}",
    "faint": "fill:{faint}",
    "idle": "fill:{idle}",
    "boxes": "stroke:{paper}",
    "grid": "stroke:{grid};fill:none",
    "area": "fill:{area}",
    "edge": "stroke:{edge};fill:none",
    "message": "stroke:{ink};fill:none",
    "tip": "fill:{ink}",
}


def style_sheet(tones: Iterable[Tone], scheme: Scheme) -> str:
    """Rules for paper and ink of a scheme, and for the tones that occur."""
    rules = _scheme(DARK if scheme == "dark" else LIGHT)
    if scheme == "auto":
        rules += f"@media screen and (prefers-color-scheme:dark){{\n{_scheme(DARK)}}}\n"
    plain = f".{ROOT}{{{FONT};font-size:12px}}\n.{ROOT} .numbers{{text-anchor:middle}}\n"
    return plain + rules + "".join(map(_tone, sorted(tones)))


def _scheme(colours: Colours) -> str:
    return "".join(f".{ROOT} .{name}{{{rule.format(**colours)}}}\n" for name, rule in RULES.items())


def _tone(tone: Tone) -> str:
    """Two rules: for boxes, and for what is written on them."""
    fill = tone.fill
    return f".{ROOT} .{tone.name}{{fill:{fill}}}\n.{ROOT} .on-{tone.name}{{fill:{ink_on(fill)}}}\n"
