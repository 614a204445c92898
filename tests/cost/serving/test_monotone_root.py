"""Roots of increasing functions, and both ends of the interval."""

import numpy as np
import pytest

from meshwright.cost.serving.monotone_root import LEAST, increasing_root


def test_roots_of_many_shapes_are_found():
    power = np.array([0.2, 1.0, 3.0, 1.0])
    bend = np.array([0.0, 5.0, 0.0, 1e4])

    def function(x):
        return x**power + bend * np.maximum(x - 1, 0)

    target = np.array([1.5, 20.0, 100.0, 7.0])
    found = increasing_root(function, target, np.full(4, 1e5))
    assert function(found) == pytest.approx(target, rel=1e-6)


def test_a_target_beyond_the_interval_gives_its_end():
    found = increasing_root(lambda x: x, np.array([50.0, 1e-12]), np.array([10.0, 10.0]))
    assert found.tolist() == [10.0, LEAST]
