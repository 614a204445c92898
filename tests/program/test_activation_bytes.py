"""Kept activation bytes against Korthikanti et al. (arXiv 2205.05198): 16-bit activations, 1-byte masks."""

from dataclasses import replace

import pytest
from lowered_programs import model

from meshwright.program.activation_bytes import kept_bytes, working_bytes
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.stack.load import load_stack

LAYER = model("gpt").blocks[1]
H, A = 64, 8
EAGER = replace(load_stack("megatron-core"), attention="eager")
FLASH = replace(EAGER, attention="flash")


def shape(s, b, tp=1, cp=1):
    return LocalShape(micro_batch=b, seq_len=s, cp=cp, tp=tp, ep=1, etp=1)


def mode(sequence_parallel=False):
    return Mode(sequence_parallel=sequence_parallel)


SIZES = [(128, 1), (256, 4), (512, 2)]


@pytest.mark.parametrize(("s", "b"), SIZES)
def test_equation_1_one_layer_on_one_device(s, b):
    assert kept_bytes(LAYER, shape(s, b), mode(), EAGER) == 34 * s * b * H + 5 * A * s * s * b


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize(("s", "b"), SIZES)
def test_equation_2_tensor_parallelism(s, b, t):
    expected = s * b * H * (10 + 24 / t + 5 * A * s / (H * t))
    assert kept_bytes(LAYER, shape(s, b, t), mode(), EAGER) == expected


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize(("s", "b"), SIZES)
def test_equation_4_with_sequence_parallelism(s, b, t):
    expected = s * b * H / t * (34 + 5 * A * s / H)
    assert kept_bytes(LAYER, shape(s, b, t), mode(True), EAGER) == expected


@pytest.mark.parametrize("t", [1, 2, 8])
def test_selective_recomputation_keeps_34_sbh_over_t(t):
    """Section 5: the attention core is run again from queries, keys and values."""
    s, b = 256, 2
    layer = replace(LAYER, recompute=("core_attn",))
    kept = kept_bytes(layer, shape(s, b, t), mode(t > 1), EAGER)
    assert kept == 34 * s * b * H / t
    assert working_bytes(layer, shape(s, b, t), mode(t > 1), EAGER) == 5 * A * s * s * b / t


@pytest.mark.parametrize(("sequence_parallel", "t"), [(False, 1), (False, 4), (True, 4)])
def test_full_recomputation_keeps_the_input_of_a_layer(sequence_parallel, t):
    s, b = 256, 2
    cut = t if sequence_parallel else 1
    full, case = replace(LAYER, recompute="full"), (shape(s, b, t), mode(sequence_parallel), EAGER)
    assert kept_bytes(full, *case) == 2 * s * b * H / cut
    assert kept_bytes(full, *case) + working_bytes(full, *case) == pytest.approx(kept_bytes(LAYER, *case))


def test_flash_attention_keeps_a_statistic_for_a_row_of_scores():
    s, b = 512, 1
    saved = kept_bytes(LAYER, shape(s, b), mode(), EAGER) - kept_bytes(LAYER, shape(s, b), mode(), FLASH)
    assert saved == 5 * A * s * s * b - 4 * A * s * b


def test_context_parallelism_cuts_everything_but_a_rows_scores():
    """A rank has 1/cp of the rows; with flash attention nothing grows with the square."""
    whole, half = (kept_bytes(LAYER, shape(512, 1, cp=c), mode(), FLASH) for c in (1, 2))
    assert half == whole / 2


def test_gated_layers_without_dropout_by_hand():
    """Llama: 2 norms, qkv input, q k v, o input, up input, gate and up, down input; no masks."""
    block, s, b, ffn, kv = model("dense").blocks[1], 128, 2, 192, 32
    elements = 2 * H + H + (H + 2 * kv) + H + H + 2 * ffn + ffn
    assert kept_bytes(block, shape(s, b), mode(), FLASH) == 2 * s * b * elements + 4 * A * s * b


def test_experts_keep_the_rows_that_are_sent_to_them():
    """k rows a token: dispatched input, gate and up, down input, and the results to combine where they are weighted."""
    block, s, b, k, width = model("moe").blocks[2], 128, 1, 2, 32
    assert block.name == "moe"
    attention = 2 * (H + H + 8 * 8 + 2 * 4 * 8 + H) + 4 * A
    head_norms = 2 * (8 * 8 + 4 * 8)
    routed = 2 * (H + H + k * (H + 2 * width + width))
    assert FLASH.weights_expert_activations
    assert kept_bytes(block, shape(s, b), mode(), FLASH) == s * b * (attention + head_norms + routed)
    afterwards = replace(FLASH, weights_expert_activations=False)
    assert kept_bytes(block, shape(s, b), mode(), afterwards) == s * b * (
        attention + head_norms + routed + 2 * k * H
    )
