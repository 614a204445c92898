"""A run that goes on under another plan takes the steps of the run that was never interrupted."""

import pytest

pytest.importorskip("torch")

import torch
from checkpoint_runs import on_ranks
from reshard_plans import PLANS, TIED_PLANS

from meshwright.runtime.checkpoint import restore_checkpoint, save_checkpoint
from meshwright.runtime.checkpoint.manifest import read_manifest
from meshwright.runtime.checkpoint.whole_parameters import whole_states

FAMILIES = {"experts": PLANS, "tied tables": TIED_PLANS}
PAIRS = [
    (family, source, target)
    for family, plans in FAMILIES.items()
    for source in plans
    for target in plans
    if source != target
]
LIMIT = 1e-9
_RUNS: dict[tuple[str, str], tuple] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("saved")


def whole_run(family, name, folder):
    """Five steps of a plan, saved after three and at the end: (checkpoint, its last losses and norms, states)."""
    if (family, name) not in _RUNS:
        case = FAMILIES[family][name]

        def work(rank, steps):
            steps(range(1, 4))
            path = save_checkpoint(folder / f"{family} {name}", rank, {})
            return path, steps(range(4, 6)), save_checkpoint(folder / f"{family} {name} end", rank, {})

        path, results, end = on_ranks(case, work)[0]
        _RUNS[family, name] = path, numbers(results), states_of(end)
    return _RUNS[family, name]


def numbers(results):
    return torch.tensor([[float.fromhex(value) for value in of_step] for of_step in results])


def states_of(path):
    return whole_states(path, read_manifest(path), ("parameter", "first_moment", "second_moment"))


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("family", "source", "target"), PAIRS)
def test_a_run_goes_on_under_another_plan(family, source, target, folder, tmp_path):
    path, results, states = whole_run(family, source, folder)

    def work(rank, steps):
        restore_checkpoint(path, rank)
        return steps(range(4, 6)), save_checkpoint(tmp_path, rank, {})

    found, end = on_ranks(FAMILIES[family][target], work)[0]
    assert relative(numbers(found), results) <= LIMIT
    again = states_of(end)
    assert again.keys() == states.keys()
    assert max(relative(again[name], states[name]) for name in states) <= LIMIT


def relative(found, expected):
    """The largest difference in units of the largest expected value."""
    return float((found - expected).abs().max() / expected.abs().max())
