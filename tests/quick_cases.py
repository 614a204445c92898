"""``@pytest.mark.quick_cases(n)``: n cases of a parametrised test run in every test, the others with the long proofs.

The cases are a covering set: each next one has the most values of parameters, then pairs of values, that none before
it has. Cases of a single parameter lie evenly in their list.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import pytest

from greedy_cover import greedy_cover


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what is left out."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("quick_cases") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        count = cases[0].get_closest_marker("quick_cases").args[0]
        cases.sort(key=lambda item: tuple(item.callspec.indices.values()))
        quick = covering([tuple(item.callspec.indices.values()) for item in cases], count)
        for place, item in enumerate(cases):
            if place not in quick:
                item.add_marker("slow")


def covering(cases: Sequence[tuple[int, ...]], count: int) -> set[int]:
    """Return the places of ``count`` cases; each case is the place of its value in the list of each parameter."""
    if len(set(zip(*cases, strict=True))) == 1:
        return {place * len(cases) // count for place in range(count)}
    return set(greedy_cover([_parts(case) for case in cases], count))


def _parts(case: tuple[int, ...]) -> tuple[set[tuple], set[tuple]]:
    values = set(enumerate(case))
    return values, set(combinations(sorted(values), 2))
