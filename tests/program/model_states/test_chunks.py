"""Chunks: the size that wastes least, and the fewest fetches that any order of leaving allows."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.model_states.chunks import STEP, fetches, packed, searched_sizes

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@given(SIZES, SIZES, st.integers(1, 4))
def test_every_parameter_is_in_one_chunk_and_ranks_own_whole_chunks(layers, tables, ranks):
    for size in range(max(layers), 3 * max(layers)):
        found = packed(layers, tables, size, ranks)
        bins = []
        for elements in layers:
            if not bins or bins[-1] + elements > size:
                bins.append(0)
            bins[-1] += elements
        chunks = len(bins) + sum(-(-table // size) for table in tables)
        assert found.count == -(-chunks // ranks)
        assert 0 <= found.waste < 1


def test_sizes_go_from_the_largest_parameter_to_twice_it():
    sizes = searched_sizes([5 * STEP + 1, STEP])
    assert sizes[0] == 5 * STEP + 1
    assert sizes[-1] <= 2 * (5 * STEP + 1) + STEP
    assert all(size % STEP == 0 for size in sizes[1:])


def test_one_parameter_as_large_as_a_chunk_wastes_nothing():
    assert packed([7, 7, 7, 7], [14], 7, 2).waste == 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 3))
def test_no_order_of_leaving_fetches_less(order, slots):
    """Of two rounds, from an empty device: the first round's fetches are those of any rule at best."""
    twice = [*order, *order]
    assert sum(_from_empty(order, slots)) == _least(tuple(twice), slots)


def _from_empty(order, slots):
    """Fetches of two rounds: of the first, each chunk's first use, and what left before."""
    return [*_first_round(order, slots), *fetches(order, slots)]


def _first_round(order, slots):
    """The first half of the same walk, recomputed by the same rule on the doubled order."""
    twice, here, found = [*order, *order], set(), []
    for at, chunk in enumerate(twice):
        found.append(chunk not in here)
        if chunk not in here and len(here) >= slots:
            following = {
                one: next((p for p in range(at, len(twice)) if twice[p] == one), 10**9) for one in here
            }
            here.remove(max(following, key=following.__getitem__))
        here.add(chunk)
    return found[: len(order)]


def _least(accesses, slots):
    """The fewest fetches of any choice of who leaves, by trying all."""
    states = {frozenset(): 0}
    for chunk in accesses:
        following = {}
        for here, count in states.items():
            if chunk in here:
                options = [(here, count)]
            elif len(here) < slots:
                options = [(here | {chunk}, count + 1)]
            else:
                options = [(here - {one} | {chunk}, count + 1) for one in here]
            for one, fetched in options:
                following[one] = min(fetched, following.get(one, 10**9))
        states = following
    return min(states.values())


def test_passes_there_and_back_keep_what_was_used_last():
    for count, slots in product(range(2, 9), range(1, 9)):
        order = [*range(count), *reversed(range(count))]
        found = fetches(order, slots)
        missing = max(0, count - slots)
        assert sum(found[:count]) == missing
        assert sum(found[count:]) == missing
