"""What selective recomputation by operator keeps, against sums by hand."""

from dataclasses import replace

import pytest

from meshwright.model.load import load_model
from meshwright.model.operators.blocks import build_graph
from meshwright.program.activation_bytes import kept_bytes
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.operator_recompute import kept_products
from meshwright.stack.load import load_stack

STACK = load_stack("torchtitan")
S, H, FFN, KV, HEADS = 1024, 4096, 14336, 1024, 32


def block_of(model, **keys):
    layer = build_graph(replace(load_model(model).architecture, **keys)).blocks[1]
    return replace(layer, recompute=STACK.selective_recompute)


@pytest.mark.parametrize(
    ("keys", "outputs"),
    [
        ({}, [H, KV, FFN, H]),
        ({"qkv_bias": True}, [H, KV, KV, H, FFN]),
        ({"gated": False}, [H, KV, FFN]),
    ],
    ids=["q v gate down", "q k v o up", "q v up"],
)
def test_every_second_product_and_those_with_a_bias_are_kept(keys, outputs):
    assert [width for _, width in kept_products(block_of("llama-3.1-8b", **keys))] == outputs


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_row_cut_products_are_kept_for_all_tokens(tp):
    shape = LocalShape(micro_batch=1, seq_len=S, cp=1, tp=tp, ep=1, etp=1)
    kept = kept_bytes(block_of("llama-3.1-8b"), shape, Mode(sequence_parallel=True), STACK)
    attention = 2 * H + 4 * HEADS
    assert kept == S * ((2 * H + attention + 2 * (H + KV + FFN)) / tp + 2 * H)
