import numpy as np

from meshwright.runtime.faults.link_waits import LinkWaits, longer_since


def waits_of(at, seed, steps=30, factor=10.0):
    rng, found = np.random.default_rng(seed), LinkWaits()
    for step in range(steps):
        slow = factor if step >= at else 1.0
        found.add(step, {(0, 1): 1e-3 * slow * rng.lognormal(0, 0.2), (0, 1, 2, 3): 2e-3})
    return found


def test_the_ends_of_a_link_find_the_step_from_which_on_they_wait_longer():
    ends = [waits_of(17, seed).joining((0, 1)) for seed in (0, 1)]
    assert longer_since(ends, 9) == 17
    assert longer_since(ends, 20) is None, "the change is no later than a healthy probe"
    assert waits_of(17, 0).longer(9)


def test_usual_waits_are_no_suspicion():
    assert not waits_of(100, 0).longer(-1)
    assert waits_of(100, 0).joining((0, 5)) == {}
    assert longer_since([{}], -1) is None
