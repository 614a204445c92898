"""Lines of messages: one for each, from the end of a pass to the start of the one that needs it, where they are few."""

import re

import pytest
from parsed_picture import boxes, drawn, panel, things, words

from meshwright.present.schedule_picture.message_lines import MAX_MESSAGES


def lines(svg):
    """(x, y) of both ends of every message, in the picture's pixels."""
    found = [thing for thing in things(svg) if "message" in thing.classes]
    numbers = r"M(\S+) ([^L]+)L(\S+) ([^M]+)"
    return [
        tuple(float(n) + (thing.left, thing.top)[i % 2] for i, n in enumerate(match))
        for thing in found
        for match in re.findall(numbers, thing.element.get("d"))
    ]


def test_1f1b_sends_a_message_to_and_fro_for_every_micro_batch_and_border():
    """2(P − 1)M."""
    assert len(lines(drawn(panel("1f1b", 4, 8, 1, 0.2), messages=True))) == 2 * 3 * 8
    assert len(lines(drawn(panel("zb-h1", 3, 5, 1), messages=True))) == 2 * 2 * 5


def test_interleaved_messages_go_round():
    """All but the last stage send forward, all but the first back: 2(PV − 1)M."""
    assert len(lines(drawn(panel("interleaved-1f1b", 4, 8, 2), messages=True))) == 2 * 7 * 8


def test_where_the_v_turns_back_nothing_is_sent():
    assert len(lines(drawn(panel("v-half", 4, 8, 2), messages=True))) == 2 * 6 * 8


@pytest.mark.parametrize("case", [("1f1b", 4, 8, 1), ("interleaved-1f1b", 4, 8, 2), ("zb-h1", 3, 5, 1)])
def test_a_line_goes_from_the_right_edge_of_one_box_to_the_left_edge_of_another(case):
    svg = drawn(panel(*case, 0.25), messages=True)
    every = [box for row in boxes(svg) for box in row]
    rights = {(round(box.right, 1), round(y, 1)) for box in every for y in (box.top, box.bottom)}
    lefts = {(round(box.left, 1), round(y, 1)) for box in every for y in (box.top, box.bottom)}
    for x1, y1, x2, y2 in lines(svg):
        assert x1 < x2
        assert any(abs(x1 - x) < 0.11 and abs(y1 - y) < 0.11 for x, y in rights)
        assert any(abs(x2 - x) < 0.11 and abs(y2 - y) < 0.11 for x, y in lefts)


def test_messages_are_drawn_only_when_asked_for():
    svg = drawn(panel("1f1b", 4, 8, 1))
    assert not lines(svg)
    assert not [text for text in words(svg) if "messages" in text]


def test_too_many_messages_are_counted_and_not_drawn():
    svg = drawn(panel("1f1b", 8, 64, 1), messages=True)
    assert MAX_MESSAGES < 2 * 7 * 64
    assert not lines(svg)
    assert "896 messages are too many to draw." in words(svg)
