"""Long lists of cases: some run in every test, the others with the long proofs."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def some_first(cases: Sequence[Any], count: int, name: Callable[[Any], str] | None = None) -> list[Any]:
    """Return all cases; those after the first ``count`` are for the long proofs."""
    return _marked(cases, set(range(count)), name)


def some_spread(cases: Sequence[Any], count: int, name: Callable[[Any], str] | None = None) -> list[Any]:
    """Return all cases; all but ``count``, which lie evenly in the list, are for the long proofs."""
    return _marked(cases, {place * len(cases) // count for place in range(count)}, name)


def _marked(cases: Sequence[Any], quick: set[int], name: Callable[[Any], str] | None) -> list[Any]:
    return [
        pytest.param(
            *(case if isinstance(case, tuple) and not hasattr(case, "_fields") else (case,)),
            marks=[pytest.mark.slow][place in quick :],
            id=name(case) if name else None,
        )
        for place, case in enumerate(cases)
    ]
