"""Means of stochastic codecs over many exchanges, held to six standard errors of a bound of their variance.

Seeds are fixed, so a test passes always or never. Nearest rounding fails the same test.
"""

from itertools import pairwise
from math import sqrt

import pytest
import torch
from codec_cases import Group

from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS
from meshwright.program.synchronisation.stretch import Stretch

DRAWS = 1000
ELEMENTS = 24
STRETCHES = (Stretch("a", ELEMENTS),)
VALUES = [
    [torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)]
    for seed in range(3)
]
LARGEST = max(own[0].abs().max().item() for own in VALUES)


def _deviation(options, draws=DRAWS):
    """Return the largest deviation of the mean of some draws; one is enough where nothing is drawn."""
    group = Group.of(options, STRETCHES)
    total = torch.zeros(ELEMENTS, dtype=torch.float64)
    for _ in range(draws):
        total += group.exchange(VALUES)[0][0]
    return (total / draws - group.exact(VALUES)[0]).abs().max().item()


def _step(name):
    """Return the largest distance of two neighbouring numbers of a format, for values up to 1."""
    quantised = QUANTISED_FORMATS[name]
    codes = sorted(quantised.codes) or [-1, -1 + 2 / (2**quantised.bits - 1)]
    return max(b - a for a, b in pairwise(codes)) / -codes[0]


def _quantised_bound(name):
    """Return six standard errors: values are within half a step, and rounded twice on their way."""
    return 6 * sqrt(2) * _step(name) / 2 * LARGEST / sqrt(DRAWS)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "bucket"), [("int8", 7), ("int4", None), ("e3m0", 7), ("tree8", None)])
def test_stochastic_rounding_is_unbiased(name, bucket):
    deviation = _deviation({"quantise": name, "rounding": "stochastic", "bucket": bucket})
    assert deviation <= _quantised_bound(name)


@pytest.mark.parametrize("name", QUANTISED_FORMATS)
def test_nearest_rounding_is_not(name):
    assert _deviation({"quantise": name}, draws=1) > _quantised_bound(name)


def test_ternary_is_unbiased_without_a_clip():
    # an element is 0 or ±s: its standard deviation is at most s/2, and a mean of ranks has no larger one
    bound = 6 * LARGEST / 2 / sqrt(DRAWS)
    assert _deviation({"ternary": {}}) <= bound
    assert _deviation({"ternary": {"clip": 1.0}}) > bound


def test_random_places_are_unbiased_when_scaled():
    share = 1 / 4
    bound = 6 * LARGEST * sqrt(1 / share - 1) / sqrt(DRAWS * len(VALUES))  # ranks draw independently
    assert _deviation({"random_k": share}) <= bound
    assert _deviation({"top_k": share}, draws=1) > bound


def test_a_sketch_is_unbiased():
    # a counter holds the other elements of its place with random signs: at most the norm of the mean in all
    norm = torch.stack([own[0] for own in VALUES]).mean(0).norm().item()
    assert _deviation({"sketch": {"width": 0.25, "rows": 1}}) <= 6 * norm / sqrt(DRAWS)
