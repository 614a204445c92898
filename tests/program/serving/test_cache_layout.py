"""Layouts of caches hold every head and token, as often as they say, and have the bytes of the closed forms."""

from itertools import product

import pytest

from meshwright.model.load import load_model
from meshwright.model.operators.operator_types import Attention
from meshwright.program.serving.cache_layout import CacheLayout, cache_layouts
from meshwright.program.serving.kv_bytes import operator_cache_bytes, replica_bytes_per_token
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import served_layers
from meshwright.program.serving.storage_formats import StorageFormats

MODELS = (
    "llama-3.1-70b",
    "deepseek-v3",
    "gpt-oss-120b",
    "minimax-text-01",
    "granite-4.0-h-micro",
    "nemotron-3-nano-30b-a3b",
    "gpt-j-6b",
    "gemma-3-12b",
)


def test_every_block_of_every_head_is_on_some_rank_and_copies_on_as_many_as_tp_has_too_much():
    layout = CacheLayout(heads=8, tokens=100, unit_bytes=2.0, tp=16, cp=3, block_tokens=16)
    held = [
        (head, block)
        for tp, cp in product(range(16), range(3))
        for head in layout.heads_of(tp)
        for block in layout.blocks_of(cp)
    ]
    assert {pair: held.count(pair) for pair in held} == dict.fromkeys(product(range(8), range(7)), 2)


def test_uneven_heads_lie_on_two_ranks_and_no_rank_has_more_than_the_first():
    layout = CacheLayout(heads=10, tokens=1, unit_bytes=1.0, tp=4)
    assert [list(layout.heads_of(place)) for place in range(4)] == [
        [0, 1, 2],
        [2, 3, 4],
        [5, 6, 7],
        [7, 8, 9],
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("tp", "cp", "tokens", "block"), [(1, 1, 33, 16), (8, 2, 1000, 1), (4, 3, 4097, 64)])
@pytest.mark.parametrize("kv", ["bf16", "fp4"])
def test_the_first_rank_has_the_bytes_of_the_closed_form(name, tp, cp, tokens, block, kv):
    model, formats = load_model(name), StorageFormats(kv=kv)
    degrees, seen = ReplicaDegrees(tp=tp, cp=cp), 0
    for block_of in model.blocks:
        for op in block_of.operators:
            layouts = cache_layouts(op, tokens, degrees, formats, block)
            closed = operator_cache_bytes(op, tokens, degrees, formats, block)
            assert sum(layout.largest_bytes for layout in layouts) == closed
            seen += bool(layouts)
    assert seen


@pytest.mark.parametrize("name", MODELS)
def test_a_token_takes_the_bytes_of_all_its_copies_in_a_replica(name):
    model, degrees, formats = load_model(name), ReplicaDegrees(tp=16), StorageFormats()
    found = sum(
        layout.block_bytes * len(layout.heads_of(place))
        for index in served_layers(model)
        for op in model.blocks[index].operators
        if isinstance(op, Attention)
        for layout in cache_layouts(op, 1, degrees, formats)
        for place in range(16)
    )
    assert found == replica_bytes_per_token(model, degrees, formats)
