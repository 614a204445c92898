"""A picture shows every action once, where its times say, and is a file that any reader can open."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsed_picture import CASES, boxes, drawn, panel, things, words

from meshwright.present.schedule_picture import Panel, schedule_svg
from meshwright.present.schedule_picture.style_sheet import DARK, LIGHT
from meshwright.schedules.action import Action
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.timeline import Timeline

HUNDREDTH = 0.011
SHAPES = {"rect", "path", "circle", "text", "g", "svg", "title", "desc", "style"}


def check_boxes(shown, rows):
    """Every action has one box in its rank's row; edges lie at one scale for all."""
    begin, end = shown.begin, shown.end
    every = [box for row in rows for box in row]
    left, right = min(box.left for box in every), max(box.right for box in every)
    scale = (right - left) / (end - begin)
    played = zip(shown.lists, shown.timeline.start, shown.timeline.end, strict=True)
    filled = [rank for rank in played if rank[0]]
    assert len(rows) == len(filled)
    for row, (actions, starts, ends) in zip(rows, filled, strict=True):
        assert sorted(box.name for box in row) == sorted(map(str, actions))
        times = sorted(zip(starts, ends, strict=True))
        edges = [(left + (start - begin) * scale, left + (end - begin) * scale) for start, end in times]
        for box, (first, last) in zip(row, edges, strict=True):
            assert box.left == pytest.approx(first, abs=HUNDREDTH)
            assert box.right == pytest.approx(last, abs=HUNDREDTH)
        assert all(one.right <= other.left + 1e-6 for one, other in pairwise(row))
    for upper, lower in pairwise(rows):
        assert upper[0].bottom < lower[0].top


@pytest.mark.parametrize("case", CASES)
def test_every_action_has_a_box_at_its_time_and_no_two_overlap(case):
    shown = panel(*case)
    check_boxes(shown, boxes(drawn(shown)))


@pytest.mark.parametrize("comm", [0.0, 0.37])
def test_boxes_stay_where_they_are_when_messages_are_drawn(comm):
    shown = panel("interleaved-1f1b", 4, 8, 2, comm)
    check_boxes(shown, boxes(drawn(shown, messages=True)))


KINDS = ("F", "B", "I", "W", "S", "T", "REDUCE", "OFFLOAD")
TIMES = st.floats(0.0, 9.0).map(lambda time: round(time, 3))


@st.composite
def random_panels(draw):
    """Any actions in any order, with pauses, some of no length."""
    chains, length = draw(st.sampled_from([(1, 1), (1, 4), (2, 3)]))
    ways = StageChains(chains * length, chains)
    lists, starts, ends = [], [], []
    for _ in range(draw(st.integers(1, 5))):
        now, actions, begun, ended = draw(TIMES), [], [], []
        for _ in range(draw(st.integers(0, 9))):
            numbers = (draw(st.integers(0, ways.stages - 1)), draw(st.integers(0, 10**9 - 1)))
            actions.append(Action(draw(st.sampled_from(KINDS)), *numbers))
            begun.append(now + draw(TIMES))
            ended.append(now := begun[-1] + draw(TIMES))
        lists.append(actions)
        starts.append(tuple(begun))
        ends.append(tuple(ended))
    return Panel(lists=lists, timeline=Timeline(tuple(starts), tuple(ends)), ways=ways)


@settings(max_examples=60, deadline=None)
@given(random_panels(), st.booleans())
def test_any_lists_can_be_drawn(shown, messages):
    svg = drawn(shown, messages=messages)
    rows = boxes(svg)
    if shown.end > shown.begin and sum(box.right - box.left > 1 for row in rows for box in row):
        edges = [box.left for row in rows for box in row] + [box.right for row in rows for box in row]
        assert max(edges) - min(edges) > 1
        check_boxes(shown, rows)
    assert sum(map(len, rows)) == shown.actions


def test_nothing_at_all_can_be_drawn():
    svg = schedule_svg([[], []], Timeline(((), ()), ((), ())), StageChains(2), title="")
    assert boxes(svg) == []


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_micro_batches_and_lie_in_their_boxes(case):
    svg = drawn(panel(*case))
    rows = boxes(svg)
    found = 0
    for thing in things(svg):
        if (
            thing.tag == "text"
            and any(name.startswith("on-") for name in thing.classes)
            and thing.top > rows[0][0].top
        ):
            inside = [
                b
                for row in rows
                for b in row
                if b.left < thing.left < b.right and b.top < thing.top < b.bottom
            ]
            assert [re.split("[A-Z]+", box.name)[1] for box in inside] == [thing.text]
            found += 1
    assert found == sum(map(len, rows)), "all boxes of small schedules have room for their numbers"


def test_numbers_that_do_not_fit_are_left_out():
    svg = drawn(panel("1f1b", 4, 200, 1), width=500)
    assert not [text for text in words(svg) if text == "199"]
    assert "numbers in boxes: micro-batches" not in words(svg)


@pytest.mark.parametrize("case", CASES)
def test_everything_lies_inside_the_view_box(case):
    svg = drawn(panel(*case))
    _, _, width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split())
    for thing in things(svg):
        assert 0 <= thing.left <= thing.left + thing.pixels("width") <= width
        assert 0 <= thing.top <= thing.top + thing.pixels("height") <= height


@pytest.mark.parametrize("width", [420, 1000])
def test_the_picture_is_as_wide_as_asked(width):
    assert ElementTree.fromstring(drawn(panel("1f1b", 4, 8, 1), width=width)).get("width") == str(width)


def test_a_picture_follows_its_readers_scheme_or_keeps_one():
    shown = panel("1f1b", 2, 2, 1)
    auto, light, dark = (drawn(shown, scheme=scheme) for scheme in ("auto", "light", "dark"))
    query = "@media screen and (prefers-color-scheme:dark)"
    before, found, after = auto.partition(query)
    assert found
    assert LIGHT["paper"] in before
    assert DARK["paper"] not in before
    assert DARK["paper"] in after
    for forced, own, other in ((light, LIGHT, DARK), (dark, DARK, LIGHT)):
        assert "@media" not in forced
        assert all(colour in forced for colour in own.values())
        assert f".paper{{fill:{own['paper']}}}" in forced
        assert not [name for name in ("idle", "grid", "area", "edge") if other[name] in forced]


@pytest.mark.parametrize("case", CASES)
def test_every_class_has_a_rule(case):
    svg = drawn(panel(*case), messages=True)
    rules = set(re.findall(r"\.([\w-]+)[ {]", svg.partition("</style>")[0]))
    used = {name for thing in things(svg) for name in thing.classes}
    assert used - rules == {"peak"}, "which only says what the text is"


def test_the_file_stands_alone_and_runs_nothing():
    svg = drawn(panel("interleaved-1f1b", 4, 8, 2), messages=True)
    assert {thing.tag for thing in things(svg)} <= SHAPES
    assert "href" not in svg
    assert "url(" not in svg
    assert "@import" not in svg
    assert re.findall('https?:[^"]*', svg) == ["http://www.w3.org/2000/svg"]


HOSTILE = '</title><script>alert(1)</script>&amp; "quoted" ]]> \x00\x1b\ud800\u202e\ufffe' + "x" * 5000


def test_hostile_words_are_only_words():
    shown = panel("1f1b", 2, 2, 1, title=HOSTILE)
    svg = schedule_svg(shown.lists, shown.timeline, shown.ways, title=HOSTILE, subtitle=HOSTILE)
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    kept = root.find("{http://www.w3.org/2000/svg}title").text
    assert kept.startswith('</title><script>alert(1)</script>&amp; "quoted" ]]> \N{REPLACEMENT CHARACTER}')
    assert {thing.tag for thing in things(svg)} <= SHAPES
    assert max(map(len, words(svg))) < 200, "a title that is too long is cut"


def test_a_reader_who_does_not_see_it_is_told_what_it_shows():
    root = ElementTree.fromstring(drawn(panel("1f1b", 4, 8, 1), title="1F1B"))
    assert root.get("role") == "img"
    assert [child.tag.rpartition("}")[2] for child in root[:2]] == ["title", "desc"]
    assert root[0].text == "1F1B"
    assert "64 actions on 4 pipeline ranks from time 0 to 33" in root[1].text
    assert "8, 6, 4, 2" in root[1].text


@pytest.mark.parametrize("unit", ["", "ms"])
def test_the_axis_has_round_times_in_the_readers_unit(unit):
    shown = panel("1f1b", 4, 8, 1)
    svg = drawn(shown, unit=unit)
    rows = boxes(svg)
    left = min(box.left for row in rows for box in row)
    scale = (max(box.right for row in rows for box in row) - left) / shown.end
    bottom = rows[-1][0].bottom
    ticks = [
        t for t in things(svg) if t.tag == "text" and bottom < t.top < bottom + 30 and t.text[:1].isdigit()
    ]
    assert [tick.text for tick in ticks] == ["0", "5", "10", "15", "20", "25", "30"]
    assert [tick.left for tick in ticks] == pytest.approx([left + 5 * i * scale for i in range(7)], abs=0.01)
    assert {f"ends at 33 {unit}".strip(), f"time, {unit}" if unit else "time"} <= set(words(svg))


PROGRAM = """
from parsed_picture import drawn, panel
print(drawn(panel("v-half", 4, 8, 2), messages=True))
"""


def test_equal_schedules_give_equal_files_in_every_process():
    here = str(Path(__file__).parent)
    made = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([here, *sys.path])},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert made[0] == made[1]
    assert len(made[0]) > 1000
