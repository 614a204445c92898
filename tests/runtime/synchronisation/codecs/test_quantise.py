"""Quantised values against the plain definitions, and the errors of formats."""

import pytest
import torch
from codec_cases import CPU

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.quantised_formats import QUANTISED_FORMATS
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting
from meshwright.runtime.synchronisation.codecs.quantise import Quantise


def _codec(elements, dtype=torch.float64, **options):
    return Quantise(CodecSetting(Compression(**options), [Stretch("a", elements)], dtype, CPU))


def _round_trip(values, **options):
    codec = _codec(len(values), values.dtype, **options)
    return codec.decode(0, codec.encode(0, values, torch.Generator().manual_seed(0)).payload, len(values))


def _normal(elements, seed=0, dtype=torch.float64):
    return torch.randn(elements, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize(("name", "levels"), [("int8", 255), ("int4", 15)])
@pytest.mark.parametrize("bucket", [8, 100])
def test_equal_steps_from_the_smallest_to_the_largest_of_a_bucket(name, levels, bucket):
    values = _normal(29)
    expected = []
    for part in values.split(bucket):
        low, step = part.min(), (part.max() - part.min()) / levels
        expected += [low + round(((one - low) / step).item()) * step for one in part]
    torch.testing.assert_close(
        _round_trip(values, quantise=name, bucket=bucket), torch.stack(expected), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("name", ["e3m0", "tree8"])
@pytest.mark.parametrize("bucket", [8, 100])
def test_the_nearest_number_of_a_table_times_the_largest_magnitude(name, bucket):
    values = _normal(29)
    table = torch.tensor(QUANTISED_FORMATS[name].codes, dtype=torch.float64)
    expected = []
    for part in values.split(bucket):
        numbers = table * part.abs().max()
        expected.append(numbers[(part[:, None] - numbers).abs().argmin(dim=1)])
    torch.testing.assert_close(_round_trip(values, quantise=name, bucket=bucket), torch.cat(expected))


@pytest.mark.parametrize("name", QUANTISED_FORMATS)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_zeros_and_equal_values_are_exact(name, rounding):
    options = {"quantise": name, "rounding": rounding, "bucket": 3}
    assert not _round_trip(torch.zeros(7), **options).any()
    if name in ("int8", "int4"):
        assert torch.equal(_round_trip(torch.full((7,), 1.7), **options), torch.full((7,), 1.7))


@pytest.mark.parametrize("name", QUANTISED_FORMATS)
def test_every_code_of_a_table_is_found_again(name):
    codes = QUANTISED_FORMATS[name].codes or tuple(range(2 ** QUANTISED_FORMATS[name].bits))
    values = torch.tensor(codes, dtype=torch.float64)
    torch.testing.assert_close(_round_trip(values, quantise=name), values, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", QUANTISED_FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_run_of_buckets_is_a_run_of_bytes(name, dtype):
    values = _normal(23, dtype=dtype)
    codec = _codec(23, dtype, quantise=name, bucket=5)
    payload = codec.encode(0, values, torch.Generator()).payload
    parts = payload.split([codec.payload_bytes(0, elements) for elements in (10, 5, 8)])
    decoded = [codec.decode(0, part, n) for part, n in zip(parts, (10, 5, 8), strict=True)]
    assert torch.equal(torch.cat(decoded), codec.decode(0, payload, 23))


def test_tree8_is_better_where_magnitudes_differ_and_not_for_a_normal_distribution():
    """Its mean relative error is a quarter of that of linear int8, its mean absolute error a quarter more.

    On values whose spread differs by element, as gradients' does, its absolute error is the smaller one too.
    """
    normal = _normal(100_000)
    errors = {name: (_round_trip(normal, quantise=name) - normal).abs() for name in ("int8", "tree8")}
    assert 0.2 < (errors["tree8"] / normal.abs()).mean() / (errors["int8"] / normal.abs()).mean() < 0.35
    assert 1.2 < errors["tree8"].mean() / errors["int8"].mean() < 1.35
    spread = normal * (2 * _normal(100_000, seed=1)).exp()
    errors = {name: (_round_trip(spread, quantise=name) - spread).abs().mean() for name in errors}
    assert errors["tree8"] < errors["int8"] / 4


def test_not_a_number_stays_none():
    values = torch.tensor([1.0, float("nan"), 2.0])
    for name in QUANTISED_FORMATS:
        assert _round_trip(values, quantise=name).isnan().any()
