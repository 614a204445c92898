"""Partitions of chains as long as models have them: proven where layers are of few kinds, honest where they are not."""

import numpy as np
import pytest

from meshwright.schedules.pipeline import looped_placement, v_placement
from meshwright.search.partition.balance import by_memory, by_time
from meshwright.search.partition.layer_chain import Chain

MEGA = 1e6


def uniform(layers):
    return np.array([0.02, *[1.0] * layers, 1.5])


def alternating(layers):
    """Five layers with a window, then one without."""
    return np.array([0.02, *(1.0 if layer % 6 == 5 else 0.8 for layer in range(layers)), 2.4])


def dense_first(layers):
    return np.array([0.02, *[0.7] * 3, *[1.0] * (layers - 3), 1.4])


def chain_of(times, placement, ranks, chunks):
    """In flight as under 1F1B: fewer on later stages."""
    stages = ranks * chunks
    return Chain.of(
        placement,
        forward=times / 3,
        input_=times * 2 / 3,
        states=[4 * MEGA, *[1.5 * MEGA] * (len(times) - 2), 4 * MEGA],
        kept=0.5 * MEGA,
        in_flight=[(stages - stage) / chunks for stage in range(stages)],
    )


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("layers_of", [uniform, alternating, dense_first])
@pytest.mark.parametrize(
    ("layers", "place", "ranks", "chunks"),
    [
        (126, looped_placement, 16, 1),
        (64, looped_placement, 16, 2),
        (64, looped_placement, 8, 4),
        (64, looped_placement, 11, 3),
        (126, looped_placement, 16, 2),
        (126, v_placement, 16, 2),
    ],
)
def test_chains_of_few_kinds_are_cut_as_well_as_can_be(layers_of, layers, place, ranks, chunks):
    times = layers_of(layers)
    chain = chain_of(times, place(ranks, chunks), ranks, chunks)
    found = by_time(chain)
    assert found.proven
    assert times.sum() / ranks <= max(found.seconds) <= times.sum() / ranks + times.max()
    roomy = max(found.bytes)
    lean = by_memory(chain, width=300)
    assert max(lean.bytes) < roomy
    between = by_time(chain, (roomy + max(lean.bytes)) / 2, width=300)
    assert max(between.bytes) <= (roomy + max(lean.bytes)) / 2 * (1 + 1e-9)
    assert max(found.seconds) * (1 - 1e-9) <= max(between.seconds) <= max(lean.seconds) * (1 + 1e-9)


def test_where_nothing_is_proven_the_bound_says_how_far_it_may_be():
    times = np.random.default_rng(1).uniform(0.5, 1.5, 66)
    chain = chain_of(times, looped_placement(8, 4), 8, 4)
    found = by_time(chain, width=300)
    assert not found.proven
    assert times.sum() / 8 <= found.bound < max(found.seconds) < 1.01 * found.bound
