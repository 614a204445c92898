"""Schedules of very many actions: the beginning and the end, in a small file that says what it leaves out."""

from itertools import pairwise

import pytest
from parsed_picture import boxes, drawn, panel, words

from meshwright.present.schedule_picture import Panel, Style, schedules_svg
from meshwright.present.schedule_picture.panel import MAX_BOXES
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import Timeline

LIMIT = 400


@pytest.mark.slow
def test_64_ranks_and_2048_micro_batches_are_a_small_file():
    lists = SCHEDULES["1f1b"].lists(64, 2048, 1)
    starts = tuple(tuple(float(rank + i) for i in range(len(actions))) for rank, actions in enumerate(lists))
    ends = tuple(tuple(start + 1 for start in row) for row in starts)
    shown = Panel(lists=lists, timeline=Timeline(starts, ends), ways=StageChains(64))
    svg = drawn(shown)
    assert len(svg.encode()) < 3_000_000
    assert 0.9 * MAX_BOXES < sum(map(len, boxes(svg))) <= MAX_BOXES
    assert [text for text in words(svg) if text.startswith("262,144 actions are too many to draw.")]


def left_out(svg):
    """The time that the picture says it leaves out."""
    (note,) = [text for text in words(svg) if "too many to draw" in text]
    times = note.partition("time ")[2].rstrip(".").split(" to ")
    return tuple(float(time.replace(",", "")) for time in times)


@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("zb-h1", 1), ("interleaved-1f1b", 2)])
def test_beginning_and_end_are_drawn_and_what_lies_between_is_named(name, chunks):
    shown = panel(name, 4, 80, chunks)
    svg = drawn(shown, max_boxes=LIMIT)
    rows = boxes(svg)
    low, high = left_out(svg)
    assert shown.begin < low < high < shown.end
    assert low - shown.begin == pytest.approx(shown.end - high, abs=1e-2)
    assert 0.8 * LIMIT < sum(map(len, rows)) <= LIMIT
    played = zip(shown.lists, shown.timeline.start, shown.timeline.end, rows, strict=True)
    for actions, starts, ends, row in played:
        seen = {
            str(a) for a, s, e in zip(actions, starts, ends, strict=True) if s < low - 0.01 or e > high + 0.01
        }
        assert seen <= {box.name for box in row}
        near = {
            str(a) for a, s, e in zip(actions, starts, ends, strict=True) if s < low + 0.01 or e > high - 0.01
        }
        assert {box.name for box in row} <= near


def test_equal_times_are_equally_wide_on_both_sides_of_a_break():
    shown = panel("1f1b", 4, 80, 1)
    svg = drawn(shown, max_boxes=LIMIT)
    low, high = left_out(svg)
    where = {box.name: box for row in boxes(svg) for box in row}
    whole = [
        (end - start, where[str(action)])
        for actions, *times in zip(shown.lists, shown.timeline.start, shown.timeline.end, strict=True)
        for action, start, end in zip(actions, *times, strict=True)
        if end < low - 0.01 or start > high + 0.01
    ]
    scales = [(box.right - box.left) / time for time, box in whole]
    assert max(scales) - min(scales) < 0.02
    assert any(box.left > where["0F20"].right for _, box in whole)
    for row in boxes(svg):
        assert all(one.right <= other.left + 1e-6 for one, other in pairwise(row))


def test_a_small_schedule_has_no_break():
    assert not [text for text in words(drawn(panel("1f1b", 4, 80, 1))) if "too many" in text]


def test_schedules_beside_each_other_share_one_time_axis():
    panels = [panel(name, 4, 8, 1, title=name) for name in ("gpipe", "1f1b", "zb-h1")]
    rows = boxes(schedules_svg(panels, title="three"))
    left = min(box.left for row in rows for box in row)
    scales = set()
    for i, shown in enumerate(panels):
        mine = rows[4 * i : 4 * i + 4]
        assert sum(map(len, mine)) == shown.actions
        assert min(box.left for row in mine for box in row) == left
        scales.add(round((max(box.right for row in mine for box in row) - left) / shown.end, 2))
    assert len(scales) == 1


def test_of_schedules_beside_each_other_every_end_is_drawn():
    panels = [panel(name, 4, 80, 1, title=name) for name in ("gpipe", "1f1b", "zb-h2")]
    svg = schedules_svg(panels, title="three", style=Style(max_boxes=LIMIT))
    assert sum(map(len, boxes(svg))) <= LIMIT
    assert [text for text in words(svg) if text.startswith("ends at")] == [
        f"ends at {shown.end:g}" for shown in panels
    ]


def test_a_limit_below_one_box_a_rank_draws_something():
    assert words(drawn(panel("1f1b", 4, 8, 1), max_boxes=1))
