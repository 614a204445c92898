"""Elements that two stretches of a tensor share, against every index by itself."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.program.rank_units.unit_layout import Cut
from meshwright.runtime.checkpoint.shared_elements import Region, overlap, runs_of


@st.composite
def regions(draw, whole_shape):
    """A stretch of a rank's part: cut along some dims, evenly or by rows, padded at will."""
    shape, cuts = list(whole_shape), []
    for dim, length in enumerate(whole_shape):
        kind = draw(st.sampled_from(("whole", "range", "rows")))
        if kind == "range":
            start = draw(st.integers(0, length))
            stop = draw(st.integers(start, length))
            shape[dim] = max(1, stop - start + draw(st.integers(0, 2)))
            cuts.append(Cut(dim, start, stop))
        elif kind == "rows" and not any(cut.rows for cut in cuts):
            rows = tuple(draw(st.permutations(range(length)))[: draw(st.integers(1, length))])
            shape[dim] = len(rows)
            cuts.append(Cut(dim, 0, len(rows), rows))
    size = int(np.prod(shape))
    start = draw(st.integers(0, size - 1))
    return Region(whole_shape, tuple(shape), tuple(cuts), start, draw(st.integers(1, size - start)))


@st.composite
def pairs(draw):
    """Two stretches of one tensor."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    return draw(regions(shape)), draw(regions(shape))


def places(region):
    """The place in the whole tensor of each element of a stretch; -1 for padding."""
    whole = np.arange(np.prod(region.whole_shape)).reshape(region.whole_shape)
    part = np.full(region.shape, -1)
    index = [np.arange(length) for length in region.whole_shape]
    for cut in region.cuts:
        index[cut.dim] = np.arange(cut.start, cut.stop) if cut.rows is None else np.asarray(cut.rows)
    held = whole[np.ix_(*index)]
    part[tuple(slice(0, length) for length in held.shape)] = held
    return part.ravel()[region.start : region.start + region.length]


@settings(deadline=None, max_examples=300)
@given(pairs())
def test_shared_elements_are_those_of_equal_places(pair):
    first, second = map(places, pair)
    expected = {
        (here, there)
        for here, place in enumerate(first)
        for there, other in enumerate(second)
        if place == other != -1
    }
    shared = overlap(*map(runs_of, pair))
    found = [
        (here + at, there + at)
        for here, there, length in zip(*(of.tolist() for of in shared), strict=True)
        for at in range(length)
    ]
    assert len(found) == len(set(found)) == shared.elements
    assert set(found) == expected
    assert shared.second.tolist() == sorted(shared.second.tolist())


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple).flatmap(regions))
def test_runs_are_maximal_and_hold_everything_but_padding(region):
    runs = runs_of(region)
    assert runs.elements == int((places(region) >= 0).sum())
    ends = zip(runs.whole + runs.lengths, runs.here + runs.lengths, strict=True)
    starts = zip(runs.whole[1:], runs.here[1:], strict=True)
    assert not [1 for end, start in zip(ends, starts, strict=False) if end == start]
