"""The first layers of each stage, run again: of a number n, and the n nearest to a plan."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.plans.layers.first_recomputed import first_recomputed, nearest_first
from meshwright.plans.layers.layer_assignment import StageLayers

counts = st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any)


def stages_of(of_stages):
    firsts = [sum(of_stages[:stage]) for stage in range(len(of_stages))]
    return [StageLayers(first, first + count) for first, count in zip(firsts, of_stages, strict=True)]


def test_each_stage_runs_its_first_layers_again():
    again = first_recomputed(stages_of([1, 3, 0, 4]), 8, 8, 2)
    assert again == ("full", "full", "full", "none", "full", "full", "none", "none")


def test_layers_for_further_tokens_are_not_among_the_first():
    assert first_recomputed(stages_of([2, 2]), 3, 4, 9) == ("full", "full", "full", "none")


@given(counts, st.integers(1, 6))
def test_the_nearest_number_of_such_layers_is_their_own(of_stages, first):
    stages, layers = stages_of(of_stages), sum(of_stages)
    again = first_recomputed(stages, layers, layers, first)
    assert nearest_first(again, stages, layers) == min(first, max(of_stages))


@given(counts, st.data())
def test_no_other_number_changes_fewer_layers(of_stages, data):
    stages, layers = stages_of(of_stages), sum(of_stages)
    words = st.sampled_from(("none", "full", ("mlp",)))
    own = data.draw(st.lists(words, min_size=layers, max_size=layers))
    found = nearest_first(own, stages, layers)

    def changed(first):
        return sum(a != b for a, b in zip(own, first_recomputed(stages, layers, layers, first), strict=True))

    others = {first: changed(first) for first in range(1, max(of_stages) + 1)}
    assert others[found] == min(others.values())
    assert all(first <= found for first, count in others.items() if count == others[found])
