"""Plans that an engine cannot run are refused by name, all reasons at once, and pass with the suggested change."""

import pytest
from started_servers import DENSE, EXPERTS, LATENT, plan_text, resolved

from meshwright.frameworks.serving.engine_facts import engine_facts
from meshwright.frameworks.serving.export_limits import serving_export_problems
from meshwright.frameworks.serving.serving_targets import SERVING_TARGETS
from meshwright.plans.serving.number_formats import KV_FORMATS, WEIGHT_FORMATS

SERVE = {"does": "serve"}
REFUSED = {
    "attention_dp of a dense model": (DENSE, {"layout": {"attention_dp": 2}}, "layout.attention_dp", "all"),
    "context parallelism": (DENSE, {"layout": {"cp": 2}}, "layout.cp", "all"),
    "some ranks of experts": (EXPERTS, {"layout": {"tp": 4, "ep": 2}}, "layout.ep", ("vllm",)),
    "tp in attention_dp": (
        EXPERTS,
        {"layout": {"attention_dp": 2, "tp": 2, "ep": 4}},
        "layout.tp",
        ("tensorrt-llm",),
    ),
    "weights in int8": (DENSE, {"quantise": {"weights": "int8"}}, "quantise.weights", ("tensorrt-llm",)),
    "a cache in int8": (DENSE, {"quantise": {"kv": "int8"}}, "quantise.kv", ("sglang", "tensorrt-llm")),
    "a latent cache in fp4": (
        LATENT,
        {"layout": {"tp": 8}, "quantise": {"kv": "fp4"}},
        "quantise.kv",
        "all",
    ),
    "nano-batches": (EXPERTS, {"overlap": "nano-batch"}, "overlap", "all"),
    "tiles": (EXPERTS, {"overlap": "tile"}, "overlap", "all"),
    "two batches of a dense model": (DENSE, {"layout": {"tp": 2}, "overlap": "two-batch"}, "overlap", "all"),
    "two batches of one rank of attention": (
        EXPERTS,
        {"layout": {"tp": 4, "ep": 4}, "overlap": "two-batch"},
        "overlap",
        ("vllm", "tensorrt-llm"),
    ),
    "a ring": (DENSE, {"layout": {"tp": 2}, "allreduce": "ring"}, "allreduce", "all"),
    "odd blocks": (
        DENSE,
        {"batching": {"block_tokens": 24, "chunk_tokens": 2400}},
        "batching.block_tokens",
        ("vllm", "tensorrt-llm"),
    ),
    "chunks of broken blocks": (
        DENSE,
        {"batching": {"block_tokens": 64, "chunk_tokens": 1000}},
        "batching.chunk_tokens",
        ("sglang",),
    ),
    "more sequences than tokens": (
        DENSE,
        {"batching": {"chunk_tokens": 512, "max_sequences": 600}},
        "batching.chunk_tokens",
        ("vllm",),
    ),
    "fewer sequences than batches": (
        DENSE,
        {"layout": {"pp": 4}, "batching": {"max_sequences": 3}},
        "batching.max_sequences",
        ("tensorrt-llm",),
    ),
    "weights that do not fit": (LATENT, {"layout": {"tp": 2}}, "layout", "all"),
    "a replica across nodes": (DENSE, {"layout": {"tp": 4, "pp": 3}}, "layout", "all"),
}


@pytest.mark.parametrize("target", SERVING_TARGETS)
@pytest.mark.parametrize("case", REFUSED)
def test_each_limit_is_refused_by_name(case, target):
    model, pool, field, targets = REFUSED[case]
    problems = serving_export_problems(target, resolved(plan_text(model, {"all": SERVE | pool})))
    found = [problem for problem in problems if problem.field == f"pools.all.{field}"]
    assert bool(found) == (targets == "all" or target in targets)
    for problem in found:
        assert problem.severity == "error"
        assert problem.suggestion


@pytest.mark.parametrize("target", SERVING_TARGETS)
@pytest.mark.parametrize(("device", "refused"), [("h200-sxm-141gb", True), ("b200", False)])
def test_a_cache_in_4_bit_needs_a_device_with_4_bit_arithmetic(target, device, refused):
    pool = SERVE | {"layout": {"tp": 2}, "quantise": {"kv": "fp4"}}
    this = resolved(plan_text(DENSE, {"all": pool}, cluster=f"{device} x 8"))
    fields = [problem.field for problem in serving_export_problems(target, this)]
    assert ("pools.all.quantise.kv" in fields) == refused


@pytest.mark.parametrize("target", SERVING_TARGETS)
def test_pipelines_of_vllm_hand_no_caches_over(target):
    pools = {
        "fill": {"does": "prefill", "layout": {"pp": 2}},
        "write": {"does": "decode", "layout": {"tp": 2}},
    }
    edges = [{"from": "fill", "to": "write", "carry": "kv"}]
    fields = [
        p.field for p in serving_export_problems(target, resolved(plan_text(DENSE, pools, edges=edges)))
    ]
    assert ("pools.fill.layout.pp" in fields) == (target == "vllm")


def test_a_layout_for_each_phase_is_refused():
    pool = {"does": "serve", "layouts": {"prefill": {"pp": 2}, "decode": {"tp": 2}}}
    for target in SERVING_TARGETS:
        fields = [p.field for p in serving_export_problems(target, resolved(plan_text(DENSE, {"all": pool})))]
        assert "pools.all.layouts" in fields


def test_all_problems_come_at_once():
    pool = {"does": "serve", "layout": {"cp": 2, "tp": 2}, "overlap": "tile", "allreduce": "tree"}
    fields = {p.field for p in serving_export_problems("vllm", resolved(plan_text(DENSE, {"all": pool})))}
    assert fields == {"pools.all.layout.cp", "pools.all.overlap", "pools.all.allreduce"}


def test_a_router_pairs_all_pools():
    pools = {
        name: {"does": does}
        for name, does in (("a", "prefill"), ("b", "prefill"), ("c", "decode"), ("d", "decode"))
    }
    some = [{"from": "a", "to": "c"}, {"from": "b", "to": "d"}]
    every = [{"from": source, "to": end} for source in "ab" for end in "cd"]
    for edges, fields in ((some, ["edges"]), (every, [])):
        problems = serving_export_problems("sglang", resolved(plan_text(DENSE, pools, edges=edges)))
        assert [problem.field for problem in problems] == fields
    mixed = {"all": SERVE, "fill": {"does": "prefill"}, "write": {"does": "decode"}}
    (found,) = serving_export_problems(
        "sglang", resolved(plan_text(DENSE, mixed, edges=[{"from": "fill", "to": "write"}]))
    )
    assert found.field == "pools"


def test_a_rank_of_several_nodes_is_refused_where_nodes_count_ranks():
    layout = {"attention_dp": 2, "tp": 8, "ep": 16}
    text = plan_text(LATENT, {"all": {"does": "serve", "layout": layout}})
    assert not serving_export_problems("vllm", resolved(text))
    layout = {"attention_dp": 2, "tp": 4, "pp": 4, "ep": 8}
    text = plan_text(LATENT, {"all": {"does": "serve", "layout": layout}})
    assert [problem.field for problem in serving_export_problems("vllm", resolved(text))] == [
        "pools.all.layout"
    ]
    assert not serving_export_problems("sglang", resolved(text))


@pytest.mark.parametrize("target", SERVING_TARGETS)
def test_words_are_those_of_values_that_a_plan_may_have(target):
    facts = engine_facts(target)
    assert {*facts.values("quantise.weights")} <= WEIGHT_FORMATS.keys()
    assert {*facts.values("quantise.kv")} <= KV_FORMATS.keys()
    assert facts.values("allreduce") == ("auto",)
    assert facts.release in facts.full_name
