"""Choose few cases of many that have every part of all of them: greedily, the first of equals.

A case is a tuple of sets; parts of a later set count where those of the earlier sets are equally many.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush


def greedy_cover(cases: Sequence[tuple[set, ...]], count: int | None = None) -> list[int]:
    """Return the places of ``count`` cases, or of as many as bring a part that none before them has.

    What a case brings only gets less, so a case whose last count is still the highest need not be compared again.
    """
    seen: set = set()
    heap = [(tuple(-len(parts) for parts in case), place) for place, case in enumerate(cases)]
    heapify(heap)
    chosen: list[int] = []
    while heap and (count is None or len(chosen) < count):
        before, place = heappop(heap)
        new = tuple(-len(parts - seen) for parts in cases[place])
        if new != before:
            heappush(heap, (new, place))
        elif count is None and not any(new):
            break
        else:
            chosen.append(place)
            seen.update(*cases[place])
    return chosen
