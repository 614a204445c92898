"""Places of each pattern."""

import pytest
import torch
from codec_cases import Group, drawn_values

from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs.select import PATTERNS


def _places(pattern, elements, kept, turn):
    return PATTERNS[pattern](elements, kept, turn, torch.Generator().manual_seed(0)).tolist()


def test_slices_go_round():
    assert [_places("slice", 7, 3, turn) for turn in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 0, 1]]


def test_strides_go_through_all_offsets():
    assert [_places("stride", 8, 2, turn) for turn in range(5)] == [[0, 4], [1, 5], [2, 6], [3, 7], [0, 4]]


@pytest.mark.parametrize("pattern", ["slice", "stride"])
@pytest.mark.parametrize(("elements", "kept"), [(1, 1), (7, 3), (10, 10), (101, 26)])
def test_places_in_turn_hold_all_elements(pattern, elements, kept):
    turns = [_places(pattern, elements, kept, turn) for turn in range(-(-elements // kept))]
    assert all(len(set(places)) == kept for places in turns)
    assert {place for places in turns for place in places} == set(range(elements))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_ranks_send_the_same_places_and_other_exchanges_others(pattern):
    stretches = (Stretch("a", 40),)
    group = Group.of({"select": {"keep": 0.25, "pattern": pattern, "momentum": 0}}, stretches)
    values = drawn_values(0, stretches)
    (exact,) = group.exact(values)
    places = []
    for _ in range(2):
        sent = group.exchange(values)[0][0]
        places.append(sent.nonzero().flatten().tolist())
        assert len(places[-1]) == 10
        torch.testing.assert_close(sent[places[-1]], exact[places[-1]], rtol=0, atol=1e-12)
    assert places[0] != places[1]
