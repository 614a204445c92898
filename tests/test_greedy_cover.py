"""The heap chooses as comparing every case each time does."""

from hypothesis import given
from hypothesis import strategies as st

from greedy_cover import greedy_cover

SMALL = st.sets(st.integers(0, 12))
CASES = st.lists(st.tuples(SMALL, SMALL.map(lambda numbers: {(n, n) for n in numbers})), max_size=12)


def _each_compared(cases, count):
    seen, chosen = set(), []
    while len(chosen) < count:
        left = [place for place in range(len(cases)) if place not in chosen]
        best = max(left, key=lambda place: [len(parts - seen) for parts in cases[place]])
        chosen.append(best)
        seen.update(*cases[best])
    return chosen


@given(CASES, st.data())
def test_the_first_of_those_that_bring_most_is_next(cases, data):
    count = data.draw(st.integers(0, len(cases)))
    assert greedy_cover(cases, count) == _each_compared(cases, count)


@given(CASES)
def test_every_part_is_in_a_chosen_case_and_each_brings_one(cases):
    chosen = greedy_cover(cases)
    seen = set()
    for place in chosen:
        parts = set().union(*cases[place])
        assert parts - seen
        seen |= parts
    assert seen == set().union(*(parts for case in cases for parts in case))
