"""Charts of lines: points lie where their values are, names are in the legend, hostile names stay text."""

from xml.etree.ElementTree import fromstring

import pytest

from meshwright.present.svg.line_chart import HEIGHT, LEFT, TOP, WIDTH, LineChart, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def _drawn(**chart):
    return fromstring(line_chart(LineChart(**{"title": "t", "across": "x", "up": "y", **chart})))


def _dots(root):
    return [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter(f"{SVG}circle")]


def test_points_lie_at_their_values():
    found = _dots(_drawn(lines={"a": [(0.0, 0.0), (4.0, 2.0), (8.0, 1.0)]}, dots=True))
    assert [x for x, _ in found] == [LEFT, LEFT + WIDTH / 2, LEFT + WIDTH]
    heights = [TOP + HEIGHT - y for _, y in found]
    assert heights[0] == pytest.approx(0)
    assert heights[1] == pytest.approx(2 * heights[2], abs=0.02)


def test_counts_are_in_powers_of_two():
    found = _dots(_drawn(lines={"a": [(1.0, 1.0), (2.0, 1.0), (8.0, 1.0)]}, dots=True, logarithmic=True))
    assert [x for x, _ in found] == pytest.approx([LEFT, LEFT + WIDTH / 3, LEFT + WIDTH], abs=0.01)


def test_what_is_published_is_dashed():
    root = _drawn(lines={"ours": [(1.0, 1.0)], "published: theirs": [(1.0, 2.0)]})
    assert sum("stroke-dasharray" in path.attrib for path in root.iter(f"{SVG}path")) == 2


@pytest.mark.parametrize(
    "lines", [{}, {"a": []}, {"a": [(0.0, 0.0)]}, {f"s{i}": [(1.0, 1.0)] for i in range(30)}]
)
def test_few_and_many_lines_are_drawn(lines):
    texts = [text.text for text in _drawn(lines=lines, dots=True).iter(f"{SVG}text")]
    assert {*lines} <= {*texts}


@pytest.mark.parametrize(
    ("top", "ticks"),
    [
        (31, ["0", "5", "10", "15", "20", "25", "30"]),
        (8, ["0", "2", "4", "6", "8"]),
        (0.2, ["0", "0.05", "0.1"]),
    ],
)
def test_ticks_are_round_numbers(top, ticks):
    root = _drawn(lines={"a": [(top, 1.0)]})
    middle = [text.text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "middle"]
    assert middle[: len(ticks)] == ticks


def test_names_stay_text():
    root = _drawn(title="t\x00", lines={"<script>&\x1b": [(1.0, 1.0)]})
    assert not list(root.iter(f"{SVG}script"))
    assert "<script>&\N{REPLACEMENT CHARACTER}" in [text.text for text in root.iter(f"{SVG}text")]
