"""Model FLOPs per token against the textbook counts that MFU is defined by."""

from dataclasses import replace

import pytest
from lattice_plans import MODELS, SPARSE, TIED, UNTIED

from meshwright.cost.flops_per_token import model_flops_per_token, recomputed_flops_per_token
from meshwright.model.architecture import LatentAttention
from meshwright.model.operators.blocks import build_graph
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.model.transforms.recomputed_layers import with_recompute
from meshwright.workload.adapter import Adapter

SEQ_LEN = 2048


def test_a_dense_model_counts_six_per_parameter_and_twelve_per_position():
    model = build_graph(replace(TIED, windows=(None,) * 16))
    parameters = model.parameters  # tied: the table counts once, as the head
    attention = 12 * TIED.layers * TIED.heads * TIED.head_dim * SEQ_LEN
    assert model_flops_per_token(model, SEQ_LEN, causal=False) == 6 * parameters + attention
    assert model_flops_per_token(model, SEQ_LEN, causal=True) == 6 * parameters + attention / 2


def test_an_untied_input_table_does_not_count():
    model = build_graph(replace(UNTIED, windows=(None,) * 18))
    tables = (UNTIED.vocab + UNTIED.max_positions) * UNTIED.hidden
    attention = 12 * UNTIED.layers * UNTIED.heads * UNTIED.head_dim * SEQ_LEN
    expected = 6 * (model.parameters - tables) + attention
    assert model_flops_per_token(model, SEQ_LEN, causal=False) == expected


def test_a_window_counts_twice_its_width_at_most():
    model, per_position = MODELS["untied"], 12 * UNTIED.heads * UNTIED.head_dim
    whole = build_graph(replace(UNTIED, windows=(None,) * 18))
    for seq_len in (256, 800, 1024, 4096):
        less = model_flops_per_token(whole, seq_len, causal=False) - model_flops_per_token(
            model, seq_len, causal=False
        )
        assert less == 9 * per_position * (seq_len - min(seq_len, 2 * 512))


def test_of_the_experts_only_the_active_ones_count():
    one, two = (
        model_flops_per_token(
            build_graph(replace(SPARSE, moe=replace(SPARSE.moe, experts_per_token=k))), SEQ_LEN, causal=False
        )
        for k in (1, 2)
    )
    assert two - one == 6 * 16 * 3 * SPARSE.hidden * SPARSE.moe.intermediate


def test_latent_attention_takes_the_mean_of_its_widths():
    latent = LatentAttention(q_rank=None, kv_rank=128, qk_nope_dim=64, qk_rope_dim=32, v_dim=64)
    arch = replace(TIED, latent=latent, kv_heads=16, head_dim=96, v_head_dim=64)
    model = build_graph(arch)
    attention = 12 * arch.layers * arch.heads * (96 + 64) / 2 * SEQ_LEN
    assert model_flops_per_token(model, SEQ_LEN, causal=False) == 6 * model.parameters + attention


@pytest.mark.parametrize("name", MODELS)
def test_model_flops_are_three_forward_passes(name):
    model = MODELS[name]
    for causal in (False, True):
        forward = model.flops_per_token_forward(SEQ_LEN, causal=causal)
        norms = 0.01 * forward  # parameters of norms and biases count 6 as well
        assert model_flops_per_token(model, SEQ_LEN, causal=causal) == pytest.approx(3 * forward, abs=norms)


def test_recomputation_adds_what_it_runs_again():
    model = MODELS["tied"]

    def again(recompute):
        planned = with_recompute(model, [recompute] * TIED.layers)
        return recomputed_flops_per_token(planned, SEQ_LEN, causal=False)

    layers = sum(
        model.blocks[i].flops_per_token_forward(SEQ_LEN, causal=False) * repeat
        for i, repeat in model.chain
        if model.blocks[i].kind == "layer"
    )
    scores = 4 * TIED.layers * TIED.heads * TIED.head_dim * SEQ_LEN
    matrices = 2 * 3 * TIED.layers * TIED.hidden * TIED.intermediate
    assert again(()) == 0
    assert again("full") == layers
    assert again(("core_attn",)) == scores
    assert again(("mlp",)) == matrices
    assert again(("mlp", "core_attn")) == scores + matrices


def test_frozen_matrices_have_no_weight_gradients():
    plain = build_graph(replace(UNTIED, windows=(None,) * 18))
    model = with_adapters(plain, Adapter(rank=8, targets=("q", "down")))
    tables = (UNTIED.vocab + UNTIED.max_positions) * UNTIED.hidden
    trained = 18 * 8 * (2 * UNTIED.hidden + UNTIED.hidden + UNTIED.intermediate)
    attention = 12 * UNTIED.layers * UNTIED.heads * UNTIED.head_dim * SEQ_LEN
    expected = 4 * (plain.parameters - tables) + 6 * trained + attention
    assert model_flops_per_token(model, SEQ_LEN, causal=False) == expected


def test_adapters_of_experts_count_as_often_as_a_token_passes_them():
    plain = build_graph(SPARSE)
    model, other = (with_adapters(plain, Adapter(rank=rank, targets=("down",))) for rank in (8, 16))
    moe = SPARSE.moe
    widths = {
        "dense": SPARSE.intermediate,
        "shared": moe.shared_intermediate,
        "experts": moe.experts_per_token * moe.intermediate,
    }
    in_dense = 8 * (SPARSE.hidden + widths["dense"])
    in_routed = 8 * ((1 + moe.experts_per_token) * SPARSE.hidden + widths["shared"] + widths["experts"])
    more = [model_flops_per_token(each, SEQ_LEN, causal=False) for each in (model, other)]
    assert more[1] - more[0] == 6 * (in_dense + 16 * in_routed)
