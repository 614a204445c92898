"""Some plans for every test run, all of them for the long proofs."""

from collections.abc import Sequence

import pytest
from covering_plans import Proven, told


def some_first(plans: Sequence[Proven], count: int) -> list:
    """All plans, named; those behind the first ``count`` are for the long proofs."""
    return [
        pytest.param(plan, marks=[pytest.mark.slow][place < count :], id=f"{plan.model} {told(plan)}")
        for place, plan in enumerate(plans)
    ]
