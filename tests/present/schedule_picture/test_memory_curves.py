"""The curves below the chart show what ranks hold, and their peaks are those of the figures."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsed_picture import CASES, drawn, panel, things

from meshwright.present.schedule_picture import Panel, schedules_svg
from meshwright.schedules.action import parse_actions
from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.timeline import run


def corners(thing):
    """Pixels of a path of horizontal and vertical lines: (x, y) of each of its points."""
    x, y, points = 0.0, 0.0, []
    for letter, numbers in re.findall(r"([MHV])([^MHVz]*)", thing.element.get("d")):
        if letter == "M":
            x, y = map(float, numbers.split())
        elif letter == "H":
            x = float(numbers)
        else:
            y = float(numbers)
        points.append((x, y))
    return points


def areas(svg):
    return [corners(thing) for thing in things(svg) if "area" in thing.classes]


def shown_peaks(svg):
    return [float(thing.text) for thing in things(svg) if "peak" in thing.classes]


@pytest.mark.parametrize("case", CASES)
def test_the_peaks_are_those_of_the_figures_and_as_high_as_they_say(case):
    shown = panel(*case)
    svg = drawn(shown)
    figures = peaks(shown.lists, shown.ways)
    assert shown_peaks(svg) == pytest.approx(figures, abs=0.005)
    heights = [points[0][1] - min(y for _, y in points) for points in areas(svg)]
    assert heights == pytest.approx([max(heights) * peak / max(figures) for peak in figures], abs=0.02)


def test_1f1b_holds_two_for_every_micro_batch_in_flight():
    assert shown_peaks(drawn(panel("1f1b", 4, 8, 1))) == [8, 6, 4, 2]
    assert shown_peaks(drawn(panel("gpipe", 4, 8, 1))) == [16] * 4


def test_what_the_input_gradient_leaves_stays_until_the_weight_gradient_ends():
    """F 0–1, I 1–2, W 5–6 with a quarter kept: 2, then 0.5, then nothing."""
    lists = [parse_actions("0F0 0I0 0F1 0I1 0W0 0W1")]
    timeline = run(lists, lambda action: 3 if action.micro_batch and action.kind == "F" else 1)
    shown = Panel(lists=lists, timeline=timeline, ways=StageChains(1), kept=0.25)
    (curve,) = shown.curves
    assert curve.times == (0, 2, 2, 6, 7, 8)
    assert curve.held == (2, 0.5, 2.5, 1, 0.5, 0)
    assert (curve.peak, curve.peak_time) == (2.5, 2)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CASES), st.floats(0, 1), st.floats(0, 1))
def test_a_curve_is_what_has_begun_and_not_ended(case, kept, moment):
    """At any moment: every F that began, less what the backward passes that ended took away."""
    made = panel(*case)
    shown = Panel(lists=made.lists, timeline=made.timeline, ways=made.ways, kept=kept)
    time = shown.begin + moment * (shown.end - shown.begin) + 1e-7
    chunk = 2 / case[3]
    taken = {"B": chunk, "I": chunk * (1 - kept), "W": chunk * kept}
    played = zip(shown.lists, shown.timeline.start, shown.timeline.end, shown.curves, strict=True)
    for actions, starts, ends, curve in played:
        begun = sum(
            chunk for a, start in zip(actions, starts, strict=True) if a.kind == "F" and start <= time
        )
        ended = sum(
            taken[a.kind] for a, end in zip(actions, ends, strict=True) if a.kind != "F" and end <= time
        )
        held = [level for at, level in zip(curve.times, curve.held, strict=True) if at <= time]
        assert (held[-1] if held else 0.0) == pytest.approx(begun - ended)


def test_passes_of_no_stage_hold_nothing():
    lists = [parse_actions("0F0 1S0 1T0 0B0 0REDUCE STEP")]
    timeline = run([parse_actions("0F0 0F1 0F2 0F3 0F4 0F5")], lambda action: 1)
    shown = Panel(lists=lists, timeline=timeline, ways=StageChains(1))
    assert shown.curves[0].held == (2, 0)
    assert shown.curves[0].times == (0, 4)


def test_schedules_beside_each_other_have_memory_to_one_scale():
    panels = [panel("gpipe", 2, 8, 1, title="gpipe"), panel("1f1b", 2, 8, 1, title="1f1b")]
    svg = schedules_svg(panels, title="two")
    heights = [points[0][1] - min(y for _, y in points) for points in areas(svg)]
    assert shown_peaks(svg) == [16, 16, 4, 2]
    assert heights == pytest.approx([heights[0], heights[0], heights[0] / 4, heights[0] / 8], abs=0.02)


@pytest.mark.parametrize("case", CASES)
def test_the_spot_marks_the_first_moment_of_the_peak(case):
    shown = panel(*case)
    svg = drawn(shown)
    spots = [thing for thing in things(svg) if thing.tag == "circle"]
    for spot, points in zip(spots, areas(svg), strict=True):
        highest = min(y for _, y in points)
        first = min(x for x, y in points if y == highest)
        assert (spot.pixels("cx"), spot.pixels("cy")) == pytest.approx((first, highest), abs=0.011)
