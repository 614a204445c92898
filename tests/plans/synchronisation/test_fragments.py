"""Layers of fragments, and the places of embedding, head, encoder and multi-token prediction."""

from collections import Counter

import pytest

from meshwright.plans.synchronisation.fragments import fragment_of_block, fragment_of_layer
from meshwright.plans.synchronisation.synchronisation import Fragments


def of_layers(pattern, count, layers):
    rule = Fragments(count=count, pattern=pattern)
    return [fragment_of_layer(layer, rule, layers) for layer in range(layers)]


def test_strided_fragments_deal_layers_in_turn():
    assert of_layers("strided", 3, 7) == [0, 1, 2, 0, 1, 2, 0]


def test_sequential_fragments_are_runs():
    assert of_layers("sequential", 3, 7) == [0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("pattern", ["strided", "sequential"])
@pytest.mark.parametrize(("count", "layers"), [(1, 5), (5, 5), (3, 16), (7, 24)])
def test_fragments_differ_by_one_layer_at_most(pattern, count, layers):
    sizes = Counter(of_layers(pattern, count, layers))
    assert set(sizes) == set(range(count))
    assert max(sizes.values()) - min(sizes.values()) <= 1


def test_the_ends_of_a_model_have_their_places():
    rule = Fragments(count=4)
    places = {
        kind: fragment_of_block(kind, 0, rule, 8) for kind in ("embed", "encoder", "encoder-end", "head")
    }
    assert places == {"embed": 0, "encoder": 0, "encoder-end": 0, "head": 3}
    assert fragment_of_block("head", 0, rule, 8, tied=True) == 0
    assert fragment_of_block("layer", 5, rule, 8) == 1


def test_multi_token_prediction_is_in_the_last_fragment():
    assert [fragment_of_layer(layer, Fragments(count=4), 8) for layer in (8, 9)] == [3, 3]
