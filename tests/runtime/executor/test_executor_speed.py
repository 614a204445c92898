"""The benchmark of speed compares like with like: in every layout both sides compute the same numbers."""

import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, when its wrappers are imported
        import executor_speed

    return executor_speed


COMPARED = ("one process", "DDP", "ZeRO-1", "FSDP2", "TP", "TP and SP", "1F1B")


def test_every_layout_has_a_plan_and_a_baseline(speed):
    from executor_cases import PLANS

    assert set(PLANS) == set(speed.LAYOUTS) == set(COMPARED)


@pytest.mark.slow
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("layout", COMPARED)
def test_both_sides_of_a_layout_compute_the_same_losses_and_norms(speed, layout):
    found = speed.compared(layout, speed.Size(64, 2, layers=2, head_dim=16, vocab=96, seq_len=16), pairs=2)
    assert found.difference < 1e-5
    assert (found.plain_s > 0).all()
    assert (found.ours_s > 0).all()


def test_a_ratio_and_its_bound_are_those_of_the_pairs(speed):
    import numpy as np

    plain = np.ones(21)
    steady = speed.Comparison("DDP", speed.SIZES[0], plain, plain * 1.5, [], [])
    assert (steady.ratio, steady.bound) == (1.5, 1.5)
    noisy = speed.Comparison("DDP", speed.SIZES[0], plain, np.linspace(0.9, 1.1, 21), [], [])
    assert noisy.ratio == pytest.approx(1.0)
    assert 1.0 < noisy.bound < 1.1
