"""Reading how experts are chosen and weighed, latent attention and sinks: defaults of families, and refusals."""

from math import log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_decoder_config import SIZES

from meshwright.errors import InputError, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.describe import describe_model
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.load import load_model
from meshwright.model.named_tensors import named_buffers, named_parameters, runnable_numerics, stored_shapes
from meshwright.model.numerics import ClampedSwiglu, Numerics
from meshwright.model.operators.blocks import build_graph
from meshwright.model.rotary import Yarn
from meshwright.model.router import Groups, LoadBalance, Routing

ROUTED = {**SIZES, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
}
KEYS = {
    "mixtral": {"num_local_experts": 8},
    "qwen2_moe": {"num_experts": 8},
    "qwen3_moe": {"num_experts": 8},
    "gpt_oss": {"num_local_experts": 8},
    "deepseek_v2": {"n_routed_experts": 8, "moe_layer_freq": 1, **LATENT},
    "deepseek_v3": {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, **LATENT},
    "glm4_moe": {"n_routed_experts": 8},
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 1},
}


def read(family: str, **changes: Any) -> Architecture:
    return read_architecture({**ROUTED, "model_type": family, **KEYS[family], **changes}, "test", "here")


def numerics(family: str, **changes: Any) -> Numerics:
    return runnable_numerics(read(family, **changes))


def routing(family: str, **changes: Any) -> Routing:
    found = numerics(family, **changes).routing
    assert found is not None
    return found


def refused(family: str, **changes: Any) -> dict[str, str]:
    """Fields and rules of what cannot be run; the model can be planned in any case."""
    arch = read(family, **changes)
    describe_model(build_graph(arch))
    with pytest.raises(UnsupportedError) as caught:
        runnable_numerics(arch)
    assert all(problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem.rule for problem in caught.value.problems}


def test_routers_of_families_are_those_of_transformers():
    corrected = Routing(scores="sigmoid", projected_in_fp32=True, normalised=True, epsilon=1e-20)
    assert routing("mixtral") == Routing(scores="softmax", normalised=True)
    assert routing("qwen2_moe") == routing("qwen3_moe") == Routing(scores="softmax")
    assert routing("qwen3_moe", norm_topk_prob=True) == routing("mixtral")
    assert routing("gpt_oss") == Routing(scores="softmax-of-chosen")
    assert routing("glm4_moe") == corrected
    assert routing("dots1", norm_topk_prob=True) == corrected
    assert routing("deepseek_v2") == Routing(scores="softmax", projected_in_fp32=True)


def test_the_zoos_routers():
    v2, v3, kimi = (load_model(name).architecture for name in ("deepseek-v2", "deepseek-v3", "kimi-k2"))
    assert v2.numerics.routing.groups == Groups(count=8, chosen=3, best=1)
    assert v3.numerics.routing.groups == Groups(count=8, chosen=4, best=2)
    assert kimi.numerics.routing.groups is None
    assert [arch.numerics.routing.scaling for arch in (v2, v3, kimi)] == [16.0, 2.5, 2.827]
    assert not v2.numerics.routing.normalised
    assert v3.numerics.routing.normalised


def test_a_model_without_routed_layers_has_no_routing():
    assert numerics("qwen3_moe", mlp_only_layers=[0, 1, 2, 3]).routing is None


def test_a_balance_counts_where_the_file_asks_for_it():
    assert routing("mixtral", router_aux_loss_coef=0.5).balance is None
    asked = routing("mixtral", router_aux_loss_coef=0.5, output_router_logits=True).balance
    assert asked == LoadBalance(coefficient=0.5 * 2 / 4, scope="micro-batch")
    some = routing("qwen3_moe", output_router_logits=True, mlp_only_layers=[0], seq_aux=True).balance
    assert some == LoadBalance(coefficient=0.001 * (2 / 3), scope="sequence")
    assert routing("deepseek_v3", aux_loss_alpha=0.3).balance == LoadBalance(
        coefficient=0.3, scope="sequence"
    )
    whole = routing("deepseek_v2", aux_loss_alpha=0.3, seq_aux=False).balance
    assert whole == LoadBalance(coefficient=0.3, scope="micro-batch")
    assert routing("deepseek_v3", aux_loss_alpha=0.0).balance is None


def test_a_correction_stays_unless_a_speed_is_given():
    assert routing("deepseek_v3").correction_speed == 0.0
    assert routing("deepseek_v3", bias_update_speed=0.001).correction_speed == 0.001


def test_latent_attention_turns_its_rotary_part_alone():
    found = numerics("deepseek_v3")
    assert (found.rotary[0].dim, found.rotary[0].interleaved) == (4, True)
    assert found.attention_scales == (16**-0.5,) * 4
    assert found.latent_norm_epsilon == 1e-6
    assert not numerics("deepseek_v3", rope_interleave=False).rotary[0].interleaved
    assert numerics("deepseek_v2", rope_interleave=False).rotary[0].interleaved


def test_yarn_multiplies_scores_where_it_says_so():
    yarn = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 32}
    assert numerics("deepseek_v2", rope_scaling=yarn).attention_scales[0] == 16**-0.5
    found = numerics("deepseek_v2", rope_scaling={**yarn, "mscale": 0.707, "mscale_all_dim": 0.707})
    assert found.attention_scales[0] == pytest.approx(16**-0.5 * (0.0707 * log(40) + 1) ** 2)
    assert found.rotary[0].attention_factor == 1.0


def test_glm_4_5_rotates_half_of_each_head():
    rotary = numerics("glm4_moe").rotary[0]
    assert (rotary.dim, rotary.interleaved) == (8, False)


def test_gpt_oss_has_an_activation_of_its_own_and_a_long_rotation():
    found = numerics("gpt_oss", swiglu_limit=5.0)
    assert found.expert_activation == ClampedSwiglu(alpha=1.702, limit=5.0)
    scaling = Yarn(factor=32.0, original_positions=4096, truncate=False)
    assert (found.rotary[0].theta, found.rotary[0].scaling) == (150000.0, scaling)
    assert numerics("gpt_oss", rope_parameters={"rope_theta": 100.0}).rotary[0].scaling is None


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise"),
        ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func"),
        ("deepseek_v3", {"topk_method": "greedy"}, "topk_method"),
        ("deepseek_v3", {"n_group": 3}, "n_group"),
        ("deepseek_v3", {"n_group": 8}, "n_group"),
        ("deepseek_v3", {"topk_group": 5}, "topk_group"),
        ("deepseek_v3", {"topk_group": 1, "num_experts_per_tok": 3}, "topk_group"),
        (
            "deepseek_v3",
            {"rope_scaling": {"type": "linear", "factor": 2.0, "mscale_all_dim": 1.0}},
            "rope_scaling.mscale_all_dim",
        ),
        ("deepseek_v3", {"qk_rope_head_dim": 3}, "rope_parameters.partial_rotary_factor"),
        ("gpt_oss", {"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_what_cannot_be_run_is_named_and_can_be_planned(family, changes, field):
    assert set(refused(family, **changes)) == {field}


def test_a_correction_of_each_expert_is_stored_and_no_parameter():
    graph = build_graph(read("deepseek_v3", first_k_dense_replace=3))
    name = "layers.3.mlp.gate.e_score_correction_bias"
    assert named_buffers(graph) == {name: (8,)}
    assert stored_shapes(graph).keys() == named_parameters(graph).keys() | {name}
    assert named_buffers(build_graph(read("mixtral"))) == {}
    assert named_buffers(load_model("llama-3.2-1b")) == {}


VALUES = st.sampled_from(
    [None, True, False, 0, 1, 2, 3, 8, -1, 2**40, 0.5, -0.5, float("nan"), "", "greedy", [], {}]
)
CHANGED = st.sampled_from(
    [
        *("n_group", "topk_group", "topk_method", "scoring_func", "norm_topk_prob", "routed_scaling_factor"),
        *("aux_loss_alpha", "seq_aux", "bias_update_speed", "router_aux_loss_coef", "output_router_logits"),
        *("router_jitter_noise", "swiglu_alpha", "swiglu_limit", "rope_interleave", "num_experts_per_tok"),
        *("qk_rope_head_dim", "rope_scaling", "first_k_dense_replace"),
    ]
)


@settings(deadline=None, max_examples=200)
@given(family=st.sampled_from(sorted(KEYS)), changes=st.dictionaries(CHANGED, VALUES, max_size=4))
def test_what_is_not_refused_can_be_computed(family, changes):
    try:
        arch = read(family, **changes)
        found = runnable_numerics(arch)
    except InputError:
        return
    hash(arch)
    if arch.moe is None:
        assert found.routing is None
        return
    groups = found.routing.groups
    if groups:
        assert arch.moe.experts % groups.count == 0
        size = arch.moe.experts // groups.count
        assert groups.best <= size
        assert arch.moe.experts_per_token <= groups.chosen * size <= arch.moe.experts
