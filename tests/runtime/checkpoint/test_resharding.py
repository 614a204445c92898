"""A run that goes on under another plan takes the steps of the run that was never interrupted."""

import pytest

pytest.importorskip("torch")

from checkpoint_pairs import pair_error, whole_run
from reshard_plans import FAMILIES, PAIRS

LIMIT = 1e-9
_RUNS = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("family", "source", "target"), PAIRS)
def test_a_run_goes_on_under_another_plan(family, source, target, folder, tmp_path):
    if (family, source) not in _RUNS:
        _RUNS[family, source] = whole_run(FAMILIES[family][source], folder / f"{family} {source}")
    assert pair_error(_RUNS[family, source], FAMILIES[family], target, tmp_path) <= LIMIT
