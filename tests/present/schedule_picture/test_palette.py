"""Colours can be told apart in print without colour, by readers who see fewer of them, and can be written on."""

from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed_picture import CASES, boxes, drawn, panel, words

from meshwright.present.schedule_picture import Panel
from meshwright.present.schedule_picture.colour_conversion import colour, ink_on, luminance
from meshwright.present.schedule_picture.palette import GREY, PAINTS, Tone
from meshwright.present.schedule_picture.style_sheet import DARK, LIGHT
from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.timeline import Timeline

PASSES = ("B", "I", "F", "W")
"""From dark to light."""
SHADES = [
    (way, ways, chunk, chunks)
    for chunks in (1, 2, 3, 4, 8)
    for ways in (1, 2)
    for way in range(ways)
    for chunk in range(chunks)
]
# What red, green and blue light become for eyes without one kind of cones (Machado et al., IEEE TVCG 15(6), 2009,
# table of severity 1.0).
EYES = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def contrast(one, other):
    """WCAG 2.2: 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def fills(kind):
    return [Tone(kind, *shade).fill for shade in SHADES]


def test_passes_have_bands_of_light_that_do_not_meet():
    for darker, lighter in pairwise(PASSES):
        assert max(map(luminance, fills(darker))) * 1.15 < min(map(luminance, fills(lighter)))


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_stands_out_from_idle_time(scheme):
    for kind in PAINTS:
        assert all(contrast(fill, scheme["idle"]) > 1.08 for fill in fills(kind))


def test_every_colour_can_be_written_on():
    every = [fill for kind in (*PAINTS, "other") for fill in fills(kind)]
    assert min(contrast(fill, ink_on(fill)) for fill in every) >= 4.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_words_can_be_read_on_paper(scheme):
    assert contrast(scheme["ink"], scheme["paper"]) >= 7
    assert contrast(scheme["faint"], scheme["paper"]) >= 4.5
    assert contrast(scheme["edge"], scheme["paper"]) >= 4.5


def seen(fill, eyes):
    """Lightness and two colour axes of OKLab, as such eyes see a colour."""
    parts = [int(fill[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    light = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    light = [max(0.0, sum(f * x for f, x in zip(row, light, strict=True))) for row in eyes]
    rows = ((0.4122, 0.5363, 0.0514), (0.2119, 0.6807, 0.1074), (0.0883, 0.2817, 0.6300))
    cones = [sum(f * x for f, x in zip(row, light, strict=True)) ** (1 / 3) for row in rows]
    axes = ((0.2105, 0.7936, -0.0041), (1.9780, -2.4286, 0.4506), (0.0259, 0.7828, -0.8087))
    return [sum(f * x for f, x in zip(row, cones, strict=True)) for row in axes]


@pytest.mark.parametrize("eyes", EYES)
def test_kinds_and_ways_stay_apart_for_eyes_that_see_fewer_colours(eyes):
    tones = [Tone(kind) for kind in PAINTS] + [Tone(kind, way, 2) for kind, way in product(PASSES, (0, 1))]
    for one, other in combinations(tones, 2):
        if one.kind != other.kind or one.ways == other.ways:
            apart = [
                a - b for a, b in zip(seen(one.fill, EYES[eyes]), seen(other.fill, EYES[eyes]), strict=True)
            ]
            assert sum(x * x for x in apart) ** 0.5 > 0.06, (one, other)


@pytest.mark.parametrize("kind", PASSES)
def test_later_chunks_are_lighter_and_the_second_way_too(kind):
    for chunks in (2, 3, 4):
        light = [luminance(Tone(kind, 0, 1, chunk, chunks).fill) for chunk in range(chunks)]
        assert all(later > 1.05 * earlier for earlier, later in pairwise(light))
    for chunks in (1, 2):
        first, second = (
            [luminance(Tone(kind, way, 2, i, chunks).fill) for i in range(chunks)] for way in (0, 1)
        )
        assert max(first) < min(second)


def test_equal_names_are_equal_colours():
    names = {}
    for kind, shade in product(PAINTS, SHADES):
        tone = Tone(kind, *shade)
        assert names.setdefault(tone.name, tone) == tone


@given(st.floats(0.1, 1), st.floats(0, 0.4), st.floats(0, 360))
def test_a_colour_is_one_that_screens_show_and_as_light_as_asked(lightness, strength, hue):
    shown = colour(lightness, strength, hue)
    assert len(shown) == 7
    assert all(0 <= int(shown[i : i + 2], 16) <= 255 for i in (1, 3, 5))
    assert seen(shown, ((1, 0, 0), (0, 1, 0), (0, 0, 1)))[0] == pytest.approx(lightness, abs=0.01)


def test_a_kind_that_the_table_lacks_is_grey_and_named():
    lists = [parse_actions("0F0 0REDUCE STEP")]
    timeline = Timeline(((0, 1, 2),), ((1, 2, 3),))
    svg = drawn(Panel(lists=lists, timeline=timeline, ways=StageChains(1)))
    assert [box.tone for box in boxes(svg)[0]] == ["F", "other", "other"]
    assert "REDUCE, STEP" in words(svg)
    assert GREY.strength == 0


@pytest.mark.parametrize("case", CASES)
def test_the_legend_names_every_kind_that_occurs_and_no_other(case):
    shown = panel(*case)
    text = words(drawn(shown))
    for kind, paint in PAINTS.items():
        assert (f"{kind} {paint.words}" in text) == (kind in shown.kinds)
    assert "idle" in text
    assert ("numbers in this legend: chunks of a rank" in text) == (case[3] > 1)


def test_chunks_of_a_rank_and_ways_through_the_model_have_colours_of_their_own():
    tones = {box.name: box.tone for row in boxes(drawn(panel("v-half", 4, 8, 2))) for box in row}
    assert (tones["0F0"], tones["7F0"]) == ("F-0of2", "F-1of2")
    assert (tones["3I0"], tones["4I0"]) == ("I-0of2", "I-1of2")
    lists = [[Action("F", 0, 0), Action("F", 3, 1)], [Action("F", 2, 1), Action("F", 1, 0)]]
    timeline = Timeline(((0, 1), (0, 1)), ((1, 2), (1, 2)))
    svg = drawn(Panel(lists=lists, timeline=timeline, ways=StageChains(4, 2)))
    assert [box.tone for row in boxes(svg) for box in row] == [
        "F-way0of2",
        "F-way1of2",
        "F-way1of2",
        "F-way0of2",
    ]
    assert "↓ first way through the model, ↑ second" in words(svg)


def test_passes_of_a_spread_vocabulary_have_no_chunk():
    lists = [parse_actions("0F0 2F0 4S0 4T0"), parse_actions("1F0 3F0 5S0 5T0")]
    timeline = Timeline(((0, 2, 4, 5), (1, 3, 4, 5)), ((1, 3, 5, 6), (2, 4, 5, 6)))
    svg = drawn(Panel(lists=lists, timeline=timeline, ways=StageChains(4)))
    assert [box.tone for box in boxes(svg)[1]] == ["F-0of2", "F-1of2", "S", "T"]
