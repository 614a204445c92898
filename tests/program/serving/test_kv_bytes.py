"""Cache bytes against hand formulas of three kinds of attention, and laws over layouts."""

import numpy as np
import pytest

from meshwright.model.load import load_model
from meshwright.program.serving.kv_bytes import replica_bytes_per_token, sequence_cache_bytes
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

BF16 = StorageFormats()


def test_grouped_heads_are_cut_over_tp_and_then_copied():
    model = load_model("llama-3.1-70b")
    degrees = ReplicaDegrees(tp=np.array([1, 2, 8, 16]))
    token = 80 * 2 * 8 * 128 * 2  # layers · keys and values · heads · width · bytes
    expected = [token, token / 2, token / 8, token / 8]
    assert sequence_cache_bytes(model, 1, degrees, BF16).tolist() == expected
    assert replica_bytes_per_token(model, degrees, BF16).tolist() == [token, token, token, 2 * token]


def test_heads_that_tp_does_not_divide_are_rounded_up():
    model = load_model("phi-4")  # 10 heads of keys and values
    on_rank = sequence_cache_bytes(model, 1, ReplicaDegrees(tp=4), BF16)
    assert on_rank == 40 * 2 * 3 * 128 * 2


def test_latent_cache_is_whole_on_each_rank_of_tp():
    model = load_model("deepseek-v3")
    degrees = ReplicaDegrees(tp=np.array([1, 8]), ep=np.array([1, 8]))
    token = 61 * (512 + 64) * 2  # the layer of multi-token prediction is not served
    assert sequence_cache_bytes(model, 1, degrees, BF16).tolist() == [token, token]
    assert replica_bytes_per_token(model, degrees, BF16).tolist() == [token, 8 * token]


def test_windows_cap_every_other_layer_of_gpt_oss():
    model = load_model("gpt-oss-120b")
    kept = sequence_cache_bytes(model, np.array([100, 1000]), ReplicaDegrees(tp=8), BF16)
    head = 2 * 64 * 2
    assert kept.tolist() == [36 * 100 * head, 18 * (1000 + 128) * head]


def test_stages_hold_their_own_layers_and_the_fullest_counts():
    model = load_model("llama-3.1-70b")
    stages = ReplicaDegrees(pp=np.array([1, 3, 8]))
    layer = 2 * 8 * 128 * 2
    assert sequence_cache_bytes(model, 1, stages, BF16).tolist() == [80 * layer, 27 * layer, 10 * layer]


def test_blocks_are_whole_and_cp_shares_them():
    model = load_model("llama-3.1-8b")
    token = 32 * 2 * 8 * 128 * 2
    kept = sequence_cache_bytes(model, 33, ReplicaDegrees(cp=np.array([1, 2, 3])), BF16, block_tokens=16)
    assert kept.tolist() == [48 * token, 32 * token, 16 * token]


@pytest.mark.parametrize(("kv", "bits"), [("bf16", 16), ("fp8", 8), ("int8", 8), ("fp4", 4.5)])
def test_formats_scale_the_cache(kv, bits):
    model = load_model("llama-3.1-8b")
    token = sequence_cache_bytes(model, 1, ReplicaDegrees(), StorageFormats(kv=kv))
    assert token == 32 * 2 * 8 * 128 * bits / 8


def test_states_of_mamba_do_not_grow_with_the_sequence():
    model = load_model("granite-4.0-h-350m")
    arch = model.architecture
    short, long = sequence_cache_bytes(model, np.array([1000, 3000]), ReplicaDegrees(), BF16)
    attention = arch.mixers.count("softmax") * 2 * arch.kv_heads * arch.head_dim * 2
    assert long - short == 2000 * attention
    states = arch.state_space
    width = states.width
    each = 4 * width * states.state + 2 * (states.filter_length - 1) * (width + 2 * states.state)
    assert short - 1000 * attention == arch.mixers.count("state-space") * each


def test_filters_of_several_groups_are_cut_over_tp():
    """Nemotron 3 Nano: 23 layers of 64 heads · 64, states of 128, 8 groups, filters of 4 positions."""
    model = load_model("nemotron-3-nano-30b-a3b")
    kept = sequence_cache_bytes(model, 0, ReplicaDegrees(tp=np.array([1, 2])), BF16)
    layer = 4 * 4096 * 128 + 2 * 3 * (4096 + 2 * 8 * 128)
    assert kept.tolist() == [23 * layer, 23 * layer / 2]
