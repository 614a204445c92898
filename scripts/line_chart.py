"""A small chart as SVG: lines over a logarithmic axis of counts; colours follow the reader's light or dark scheme."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log2

from meshwright.present.runs.validation_scatter import DARK, LIGHT

Line = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 430, 260, 70, 44, 50, 210
STEPS = 5
PLAIN = "text{font:13px system-ui,sans-serif;fill:var(--ink)}path{fill:none}.grid{stroke:var(--grid)}"


def line_chart(title: str, of: str, what: str, lines: Mapping[str, Line]) -> str:
    """``lines`` by name over ``of``, from zero up; names that begin with "published" are dashed."""
    xs = sorted({x for line in lines.values() for x, _ in line})
    top = 1.05 * max(y for line in lines.values() for _, y in line)
    low, high = log2(xs[0]), log2(xs[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + (log2(x) - low) / (high - low) * WIDTH, TOP + (1 - y / top) * HEIGHT

    width, height = LEFT + WIDTH + LEGEND, TOP + HEIGHT + BOTTOM
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{_style()}</style>",
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>',
        f'<text x="{LEFT}" y="24" font-weight="600">{escape(title)}</text>',
    ]
    for x in xs:
        left, base = at(x, 0)
        body.append(f'<path class="grid" d="M{left:.1f} {TOP}V{base:.1f}"/>')
        body.append(f'<text x="{left:.1f}" y="{base + 18:.1f}" text-anchor="middle">{x:,.0f}</text>')
    for step in range(STEPS + 1):
        value = top / 1.05 * step / STEPS
        left, level = at(xs[0], value)
        body.append(f'<path class="grid" d="M{left:.1f} {level:.1f}h{WIDTH}"/>')
        body.append(f'<text x="{left - 8:.1f}" y="{level + 4:.1f}" text-anchor="end">{value:,.3g}</text>')
    for number, (name, line) in enumerate(lines.items()):
        drawn = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in line))
        look = f'stroke="var(--c{number})" stroke-width="2"'
        look += ' stroke-dasharray="5 4"' if name.startswith("published") else ""
        y = TOP + 10 + 20 * number
        body.append(f'<path {look} d="M{drawn}"/><path {look} d="M{LEFT + WIDTH + 16} {y - 4}h22"/>')
        body.append(f'<text x="{LEFT + WIDTH + 44}" y="{y}">{escape(name)}</text>')
    middle = TOP + HEIGHT / 2
    body.append(f'<text x="{LEFT + WIDTH / 2}" y="{height - 10}" text-anchor="middle">{escape(of)}</text>')
    turned = f'transform="translate(16,{middle}) rotate(-90)" text-anchor="middle"'
    return "\n".join([*body, f"<text {turned}>{escape(what)}</text>", "</svg>"]) + "\n"


def _style() -> str:
    def scheme(paper: str, ink: str, grid: str, colours: Sequence[str]) -> str:
        variables = {"paper": paper, "ink": ink, "grid": grid}
        variables |= {f"c{number}": colour for number, colour in enumerate(colours)}
        return ":root{" + ";".join(f"--{name}:{value}" for name, value in variables.items()) + "}"

    light, dark = (
        scheme("#ffffff", "#22262a", "#d5d9de", LIGHT),
        scheme("#16191d", "#e4e7ea", "#3a4048", DARK),
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}{PLAIN}"
