"""What a plan saves and costs that recomputes norms, under a stack that computes them inside of products."""

from dataclasses import replace

import pytest

from meshwright import api
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.plans.choices.recompute_sets import operator_sets
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

PLAN = """\
plan: 1
model: {model}
cluster: h100-sxm-80gb x 32
workload: {{seq_len: 4096, global_batch: 32}}
stack: {stack}
layout: {{pp: 2, dp_shard: 8, tp: 2}}
sharding: zero1
recompute: {recompute}
"""
DENSE, SPARSE, LATENT = "qwen3-32b", "mixtral-8x7b", "deepseek-v2"


@pytest.fixture
def predicted(tmp_path):
    """Step time, bytes of activations and remarks about recomputation of a plan."""

    def predict(model, recompute, stack="megatron-core"):
        path = tmp_path / "plan.yaml"
        path.write_text(PLAN.format(model=model, recompute=recompute, stack=stack), encoding="utf-8")
        report = api.predict(path)
        remarks = [remark for remark in report.remarks if "has no effect" in remark]
        return report.step_time_s, report.memory_bytes["activations"], remarks

    return predict


def test_norms_of_a_dense_model_are_not_recomputed_in_megatron(predicted):
    time, kept, remarks = predicted(DENSE, "none")
    assert not remarks
    assert predicted(DENSE, "[layernorm]")[:2] == (time, kept)
    (remark,) = predicted(DENSE, "[layernorm]")[2]
    assert "layernorm has no effect: megatron-core@0.19" in remark
    assert "recompute: none" in remark
    assert predicted(DENSE, "[core_attn, layernorm]")[:2] == predicted(DENSE, "[core_attn]")[:2]


def test_norms_that_are_kernels_of_their_own_are_recomputed(predicted):
    for model, stack in ((DENSE, "meshwright"), (SPARSE, "megatron-core"), (LATENT, "megatron-core")):
        (time, kept, _), (longer, fewer, remarks) = (
            predicted(model, name, stack) for name in ("none", "[layernorm]")
        )
        assert longer > time
        assert fewer < kept
        assert not remarks


def test_a_recomputed_mlp_runs_its_norm_again(predicted, tmp_path):
    """It keeps the stream in place of the norm's result, which the residual keeps anyway."""
    local = tmp_path / "local.yaml"
    local.write_text("like: megatron-core\nname: local\nrelease: '1'\nsource: a test\nnorm_products: []\n")
    (fused_time, fused, _), (time, kept, _) = (predicted(DENSE, "[mlp]", s) for s in ("megatron-core", local))
    layers, in_flight = 32, 2
    assert kept - fused == layers * in_flight * 2 * 5120 * 4096 / 2
    assert fused_time > time
    assert predicted(DENSE, "none", local)[:2] == predicted(DENSE, "none")[:2]


def _setting(model, stack):
    graph, cluster = load_model(model), load_cluster("h100-sxm-80gb x 32")
    return Setting.of(graph, cluster, Workload(seq_len=4096, global_batch=32), stack)


def test_the_search_offers_no_set_without_effect():
    stack = load_stack("megatron-core")
    assert operator_sets(_setting(DENSE, stack)) == (("mlp",), ("core_attn", "mlp"))
    apart = operator_sets(_setting(DENSE, replace(stack, norm_products=())))
    assert ("layernorm",) in apart
    assert ("layernorm",) in operator_sets(_setting(SPARSE, stack))
