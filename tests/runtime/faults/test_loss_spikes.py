import numpy as np
import pytest

from meshwright.runtime.faults.loss_spikes import LossHistory


def spikes(losses):
    history = LossHistory()
    return [fault.step for step, loss in enumerate(losses) if (fault := history.add(step, loss)) is not None]


def curve(steps, floor, noise, seed=0):
    """A loss that falls from 10 to ``floor`` with noise of a part of it."""
    rng, number = np.random.default_rng(seed), np.arange(steps)
    return (floor + (10 - floor) * np.exp(-number / 200)) * (1 + noise * rng.standard_t(5, steps))


@pytest.mark.parametrize("at", [3, 12, 400, 1900])
@pytest.mark.parametrize(("floor", "noise"), [(2.0, 0.02), (0.01, 0.1), (6.9, 0.0)])
def test_a_step_with_ten_times_the_loss_is_a_spike(at, floor, noise):
    losses = curve(2000, floor, noise)
    losses[at] *= 10
    assert spikes(losses) == [at]


@pytest.mark.parametrize("floor", [2.0, 0.01, 1e-6])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_healthy_losses_have_no_spike(floor, noise):
    assert not spikes(curve(10_000, floor, noise))


def test_a_long_spike_is_told_once_and_a_loss_that_is_not_finite_never():
    losses = [2.0] * 20 + [20.0] * 3 + [2.0] * 5 + [float("nan")] + [2.0] * 5
    assert spikes(losses) == [20]


def test_evidence_has_both_figures():
    history = LossHistory()
    for step in range(12):
        history.add(step, 2.0)
    assert (
        history.add(12, 20.0).evidence
        == "the loss is 20, the median of the 12 steps before 2 and their spread 0"
    )
