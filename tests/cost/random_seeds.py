"""Seeds of random cases: a few in every run, all in the proof."""

import pytest


def seeds(quick, all_):
    """``range(all_)``, of which all but the first ``quick`` are slow."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, all_))]
