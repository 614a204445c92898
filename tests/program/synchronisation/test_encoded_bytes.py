"""Encoded bytes, counted by hand. Tests of the runtime compare them with messages that codecs pack."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.plans.synchronisation.compression import CODECS, Budget, Compression
from meshwright.program.synchronisation.encoded_bytes import CODEC_BYTES, encoded_bytes, exchange_bytes
from meshwright.program.synchronisation.low_rank_ranks import low_rank_ranks
from meshwright.program.synchronisation.stretch import Stretch

VECTOR = Stretch("vector", 1001)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 4004),
        ({"cast": "bf16"}, 2002),
        ({"quantise": "int8"}, 1001 + 8),
        ({"quantise": "int8", "bucket": 100}, 1001 + 11 * 8),
        ({"quantise": "int8", "bucket": 5000}, 1001 + 8),
        ({"quantise": "int4", "bucket": 99}, 10 * (50 + 8) + 6 + 8),
        ({"quantise": "e3m0"}, 501 + 4),
        ({"quantise": "tree8", "bucket": 143}, 1001 + 7 * 4),
        ({"ternary": {}}, 251 + 4),
        ({"dct": {"chunk": 64, "keep": 8}}, (15 * 8 + 8) * 5),
        ({"dct": {"chunk": 500, "keep": 8}}, (2 * 8 + 1) * 6),
        ({"dct": {"chunk": 64, "keep": 8}, "cast": "fp16"}, 128 * 3),
        ({"select": {"keep": 0.25}}, 251 * 4),
        ({"select": {"keep": 0.25}, "cast": "bf16"}, 251 * 2),
        ({"top_k": 0.01}, 11 * 6),
        ({"top_k": 1e-9, "cast": "bf16"}, 4),
        ({"random_k": 0.01}, 11 * 4),
        ({"sketch": {"width": 0.1}}, 3 * 101 * 4),
        ({"sketch": {"width": 1.5, "rows": 2}}, 2 * 1502 * 4),
        ({"low_rank": 1}, 4004),
    ],
)
def test_bytes_of_a_vector(options, size):
    assert encoded_bytes(Compression(**options), VECTOR) == size


def test_bytes_of_factors():
    experts = Stretch("experts", 4 * 60 * 100, (4, 60, 100), 0)
    assert encoded_bytes(Compression(low_rank=2), experts) == 4 * 2 * 160 * 4
    assert encoded_bytes(Compression(low_rank=2, cast="bf16"), experts) == 4 * 2 * 160 * 2
    assert encoded_bytes(Compression(low_rank=38), experts) == 4 * 60 * 100 * 4
    assert encoded_bytes(Compression(low_rank=37), experts) == 4 * 37 * 160 * 4


def test_a_budget_counts_the_ranks_that_it_chooses_for_all_stretches():
    shapes = {"experts": (8, 64, 64), "weight": (1, 512, 512)}
    stretches = [Stretch(name, prod(shape), shape, 0) for name, shape in shapes.items()]
    budget = Compression(low_rank=Budget(budget=4))
    assert low_rank_ranks(budget, stretches) == (2, 5)
    assert exchange_bytes(budget, stretches) == 4 * (8 * 2 * 128 + 5 * 1024)
    assert exchange_bytes(budget, stretches) < exchange_bytes(Compression(low_rank=4), stretches)


@pytest.mark.parametrize("layer", [None, 0, 3])
def test_other_layers_are_sent_as_they_are(layer):
    stretch = Stretch("weight", 1000, None, layer)
    assert encoded_bytes(Compression(quantise="int8", cast="bf16", layers="1..2"), stretch) == 4000


def test_nothing_is_sent_of_an_empty_stretch():
    for options in ({}, {"ternary": {}}, {"top_k": 0.1}, {"quantise": "int8"}):
        assert encoded_bytes(Compression(**options), Stretch("empty", 0)) == 0
    assert encoded_bytes(None, Stretch("empty", 0)) == 0


@given(st.integers(1, 5000), st.integers(1, 300), st.sampled_from(["int8", "int4", "e3m0", "tree8"]))
def test_a_bucket_of_the_stretch_is_the_fewest_bytes(elements, bucket, name):
    stretch = Stretch("a", elements)
    whole = encoded_bytes(Compression(quantise=name), stretch)
    assert whole <= encoded_bytes(Compression(quantise=name, bucket=bucket), stretch)
    assert whole == encoded_bytes(Compression(quantise=name, bucket=elements), stretch)


def test_every_codec_has_a_row_but_those_that_count_otherwise():
    assert {*CODEC_BYTES, "low_rank", "lsh"} == set(CODECS)
