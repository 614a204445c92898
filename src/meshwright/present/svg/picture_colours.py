"""Colours and style sheets of pictures, on light and on dark paper."""

from collections.abc import Mapping, Sequence

LIGHT = {"paper": "#ffffff", "ink": "#1b1f24", "faint": "#59626c", "grid": "#cdd3d9"}
DARK = {"paper": "#14171b", "ink": "#e6e9ec", "faint": "#9aa4ae", "grid": "#3d454d"}
FONT = "system-ui,-apple-system,Segoe UI,Arial,sans-serif"
OKABE_ITO = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#f0e442",
    "#000000",
    "#999999",
)
"""Colours of areas for all readers: M. Okabe and K. Ito, "Color Universal Design" (2008), then grey."""
LINES_ON_LIGHT = ("#1f6fb4", "#d1541b", "#2b8a3e", "#8e44ad", "#b8860b", "#0b8a8f", "#c2255c", "#5c6770")
LINES_ON_DARK = ("#6cb4f0", "#ff9d6b", "#74d68a", "#cf9bea", "#f0c75e", "#5fd8dc", "#ff8fb5", "#b4bec6")
"""Colours of lines and points, which need more contrast with the paper than areas do."""


def themed_style(rules: str, light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """Return a style sheet: ``rules`` with variables for paper, ink, faint, grid and c0, c1, … of either scheme.

    ``light`` and ``dark`` are further variables of a picture.
    """
    on_light = _variables({**LIGHT, **light}, LINES_ON_LIGHT)
    on_dark = _variables({**DARK, **dark}, LINES_ON_DARK)
    text = f"text{{font:13px {FONT};fill:var(--ink)}}"
    return f"{on_light}@media(prefers-color-scheme:dark){{{on_dark}}}{text}{rules}"


def _variables(colours: Mapping[str, str], lines: Sequence[str]) -> str:
    every = {**colours, **{f"c{number}": colour for number, colour in enumerate(lines)}}
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in every.items()) + "}"
