"""Draw the bubble of schedules against the peak memory of their fullest rank, one line per schedule."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, tostring

from meshwright.schedules.picture.palette import OKABE_ITO
from meshwright.schedules.picture.svg_elements import printable, shape, text_width

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT, SIZE = 640.0, 400.0, 64.0, 56.0, 48.0, 24.0, 12.0
PAPER, INK, FAINT = "#ffffff", "#1b1f24", "#d0d7de"
FONT = "system-ui,-apple-system,Segoe UI,Arial,sans-serif"
TICKS = 5
Point = tuple[str, float, float]


def bubble_against_memory(points: Sequence[Point]) -> str:
    """Return the SVG document. ``points``: schedule, peak memory in F of a micro-batch on a rank = 2, bubble rate."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": FONT})
    root.attrib |= {"width": f"{WIDTH:g}", "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}"}
    shape(root, "title", "Bubble against memory")
    shape(root, "rect", width="100%", height="100%", fill=PAPER)
    most_memory = max((memory for _, memory, _ in points), default=1.0)
    most_bubble = max((bubble for *_, bubble in points), default=0.0) or 1.0
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(memory: float, bubble: float) -> tuple[float, float]:
        return LEFT + memory / most_memory * across, TOP + down - bubble / most_bubble * down

    for tick in range(TICKS + 1):
        memory, bubble = most_memory * tick / TICKS, most_bubble * tick / TICKS
        (x, _), (_, y) = place(memory, 0.0), place(0.0, bubble)
        shape(root, "line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, stroke=FAINT)
        _write(root, f"{bubble:.1%}", LEFT - 6, y + 4, "end")
        _write(root, f"{memory:.3g}", x, HEIGHT - BOTTOM + 18, "middle")
    _write(root, "peak memory of the fullest rank (F of a micro-batch on a whole rank: 2)", LEFT, HEIGHT - 8)
    _write(root, "bubble, of the busiest rank's work", 8, TOP - 12)
    names = list(dict.fromkeys(name for name, *_ in points))
    left = 8.0
    for number, name in enumerate(names):
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        own = sorted((memory, bubble) for other, memory, bubble in points if other == name)
        dots = [place(*point) for point in own]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        shape(root, "polyline", points=path, fill="none", stroke=colour, stroke_width=1.5)
        for (x, y), (memory, bubble) in zip(dots, own, strict=True):
            dot = shape(root, "circle", cx=x, cy=y, r=4.5, fill=colour)
            shape(dot, "title", printable(f"{name}: memory {memory:g}, bubble {bubble:.1%}"))
        shape(root, "circle", cx=left + 5, cy=16, r=5, fill=colour)
        _write(root, name, left + 14, 20)
        left += 14 + text_width(name, SIZE) + 18
    return tostring(root, encoding="unicode") + "\n"


def _write(root: Element, text: str, x: float, y: float, anchor: str = "start") -> None:
    shape(root, "text", printable(text), x=x, y=y, font_size=SIZE, fill=INK, text_anchor=anchor)
