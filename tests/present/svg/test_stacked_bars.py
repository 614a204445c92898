"""Stacked bars: widths in proportion, everything inside the picture, many bars cut to the longest."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.present.svg.stacked_bars import LENGTH, MOST_ROWS, WIDTH, StackedBars, stacked_bars

PARTS = st.dictionaries(st.sampled_from([f"part {n}" for n in range(12)]), st.floats(0, 1e12))


@given(st.lists(PARTS, max_size=40), st.none() | st.floats(0, 1e12))
def test_boxes_are_in_proportion_and_inside(bars, limit):
    named = [(f"bar {n} <&>", parts) for n, parts in enumerate(bars)]
    picture = stacked_bars(StackedBars("a title", named, "{:g} s".format, limit, "limit"))
    boxes = [box for box in picture.iter("rect") if box.find("title") is not None]
    height = float(picture.attrib["viewBox"].split()[-1])
    longest = max([sum(parts.values()) for parts in bars] + [limit or 0.0]) or 1.0
    shown = sorted((sum(parts.values()) for parts in bars), reverse=True)[:MOST_ROWS]
    drawn = sum(float(box.attrib["width"]) for box in boxes)
    assert abs(drawn - sum(shown) / longest * LENGTH) < 0.01 * (1 + len(boxes))
    for box in boxes:
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert 0 <= x <= x + float(box.attrib["width"]) <= WIDTH + 0.1
        assert 0 <= y < height
    said = any("longest of" in (text.text or "") for text in picture.iter("text"))
    assert said == (len(bars) > MOST_ROWS)


def test_a_part_has_one_colour_in_all_bars_and_in_the_legend():
    bars = [("a", {"x": 1.0, "y": 2.0}), ("b", {"y": 1.0, "x": 3.0})]
    picture = stacked_bars(StackedBars("t", bars, str))
    colours = {}
    for box in picture.iter("rect"):
        title = box.find("title")
        if title is not None:
            colours.setdefault(title.text.split(", ")[1].split(":")[0], set()).add(box.attrib["fill"])
    assert len(colours) == 2
    assert all(len(found) == 1 for found in colours.values())
