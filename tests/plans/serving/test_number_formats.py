"""Bits of number formats, scales included."""

import pytest

from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp16", 16),
        ("fp8", 8),
        ("int8", 8),
        ("fp8-block", 8 + 32 / 16384),
        ("fp4", 4 + 8 / 16),
        ("int4", 4 + 20 / 128),
    ],
)
def test_bits_of_weights(name, bits):
    assert WEIGHT_FORMATS[name].bits_per_element == bits


def test_formats_of_the_language():
    assert [*WEIGHT_FORMATS] == ["bf16", "fp16", "fp8", "fp8-block", "fp4", "int8", "int4"]
    assert [*KV_FORMATS] == ["bf16", "fp8", "int8", "fp4"]
    assert all(kind == WEIGHT_FORMATS[name] for name, kind in KV_FORMATS.items())
