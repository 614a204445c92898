"""Legs of an exchange: kinds, logical bytes, and their sum."""

import pytest

from meshwright.plans.synchronisation.compression import CODECS, Compression
from meshwright.program.synchronisation.encoded_bytes import NONE, exchange_bytes
from meshwright.program.synchronisation.exchange_legs import (
    TRANSPORTS,
    exchange_legs,
    row_leg,
    split_stretches,
)
from meshwright.program.synchronisation.stretch import Stretch

STRETCHES = (
    Stretch("matrix", 20 * 30, (1, 20, 30), 0),
    Stretch("empty", 0, None, 0),
    Stretch("vector", 30, None, 1),
    Stretch("experts", 3 * 40 * 10, (3, 40, 10), 1),
)
RANKS = 4


def _legs(options):
    return [(leg.kind, leg.logical_bytes) for leg in exchange_legs(options, STRETCHES, RANKS)]


def test_without_a_codec_all_values_are_reduced_at_once():
    assert _legs(None) == [("all-reduce", (600 + 30 + 1200) * 4)]


def test_quantised_sums_are_dealt_and_gathered():
    assert _legs(Compression(quantise="int8")) == [("all-to-all", 1830 + 24), ("all-gather", 1830 + 24)]


def test_gathered_messages_count_those_of_all_ranks():
    assert _legs(Compression(ternary={})) == [("all-gather", RANKS * (150 + 8 + 300 + 12))]


def test_factors_take_two_rounds_and_vectors_travel_with_the_first():
    left, right = 2 * 20 + 3 * 2 * 40, 2 * 30 + 3 * 2 * 10
    assert _legs(Compression(low_rank=2)) == [("all-reduce", (left + 30) * 4), ("all-reduce", right * 4)]
    assert _legs(Compression(low_rank=2, cast="bf16")) == [
        ("all-reduce", left * 2 + 30 * 4),
        ("all-reduce", right * 2),
    ]


def test_other_layers_are_reduced_behind_the_codec():
    assert _legs(Compression(quantise="tree8", layers="0")) == [
        ("all-to-all", 604),
        ("all-gather", 604),
        ("all-reduce", 1230 * 4),
    ]
    assert _legs(Compression(sketch={"width": 0.1, "rows": 1}, layers="0")) == [
        ("all-reduce", 60 * 4 + 1230 * 4)
    ]


def test_a_codec_that_encodes_nothing_has_one_round():
    assert _legs(Compression(low_rank=2, layers="7..9")) == [("all-reduce", 1830 * 4)]
    assert exchange_legs(Compression(low_rank=2), (Stretch("empty", 0),), RANKS) == ()


@pytest.mark.parametrize("options", [{"low_rank": 1}, {"top_k": 0.1, "layers": "1"}, {"quantise": "int4"}])
def test_legs_carry_the_encoded_bytes(options):
    compression = Compression(**options)
    times = {"all-reduce": 1, "all-gather": RANKS, "all-to-all": 1}
    legs = [leg for leg in _legs(compression) if not (leg[0] == "all-gather" and compression.quantise)]
    assert sum(size / times[kind] for kind, size in legs) == exchange_bytes(compression, STRETCHES)


def test_every_codec_of_values_has_a_transport():
    assert {*TRANSPORTS} == {NONE, *CODECS} - {"lsh"}


def test_stretches_are_split_by_layers_and_shapes():
    assert split_stretches(Compression(low_rank=2), STRETCHES).encoded == (0, 3)
    assert split_stretches(Compression(low_rank=2), STRETCHES).whole == (2,)
    assert split_stretches(Compression(top_k=1, layers="1"), STRETCHES).encoded == (2, 3)


def test_rows_of_all_ranks_are_gathered_in_one_leg_with_any_codec():
    for options in (None, Compression(quantise="int8"), Compression(top_k=0.1, layers="0")):
        leg = row_leg(options, STRETCHES, RANKS)
        assert (leg.kind, leg.logical_bytes) == ("all-gather", RANKS * exchange_bytes(options, STRETCHES))
