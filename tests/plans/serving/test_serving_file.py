"""Serving plans as files: what they say, and what is wrong with them."""

import pytest
from hypothesis import given, settings
from serving_cases import ONE_POOL, PHASES, POOLS, TEXTS, serving, serving_files

from meshwright.errors import InputError, UnsupportedError
from meshwright.plans.files.plan_file import (
    dump_plan,
    load_any_plan,
    load_plan,
    parse_any_plan,
    parse_plan,
    refuse_serving,
)
from meshwright.plans.forms.short import ShortPlan

TRAINS = """\
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 8192, global_batch: 64}
layout: {dp_replicate: 8}
"""


def problems_of(text: str) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        parse_any_plan(text, "p.yaml")
    return {problem.field: f"{problem.rule} | {problem.suggestion}" for problem in caught.value.problems}


@settings(max_examples=40, deadline=None)
@given(serving_files())
def test_a_serving_plan_survives_its_file(plan):
    assert parse_any_plan(dump_plan(plan)) == plan


@pytest.mark.parametrize("text", TEXTS)
def test_the_shared_plans_survive_their_files(text):
    assert parse_any_plan(dump_plan(serving(text))) == serving(text)


def test_the_plan_of_two_pools_reads_as_written():
    plan = serving(POOLS)
    fill, write = plan.pools["fill"], plan.pools["write"]
    assert (fill.does, fill.replicas, fill.layout.tp, fill.layout.ep, fill.layout.etp) == (
        "prefill",
        2,
        8,
        8,
        None,
    )
    assert (write.does, write.replicas, write.layout.attention_dp) == ("decode", 1, 16)
    assert (write.quantise.weights, write.quantise.kv, write.overlap) == ("fp8", "fp8", "two-batch")
    assert (fill.batching.chunk_tokens, write.batching.max_sequences) == (16384, 64)
    assert (plan.edges[0].source, plan.edges[0].to, plan.edges[0].carry) == ("fill", "write", "kv")
    assert (plan.workload.objectives.ttft_ms, plan.workload.objectives.tpot_ms) == (2000, 50)


def test_defaults_of_a_pool():
    pool = serving(ONE_POOL, ("replicas: 2, layout: {tp: 4}", "replicas: 1")).pools["all"]
    batching = pool.batching
    assert (pool.replicas, pool.overlap, pool.allreduce) == (1, "none", "auto")
    assert (batching.policy, batching.preempt, batching.prefix_cache) == ("continuous", "recompute", True)
    assert (batching.block_tokens, batching.kv_fraction, batching.max_sequences) == (16, 0.9, None)
    assert (pool.quantise.weights, pool.quantise.kv) == (None, None)


def test_each_layout_is_one_line_of_the_file():
    text = dump_plan(serving(PHASES))
    assert "      prefill: {attention_dp: 1, tp: 4, pp: 2, cp: 1}\n" in text
    assert "workload: {task: serve, lengths: [{input_tokens: 500," in text


TRAINING_KEYS = {
    "layout": ("layout: {tp: 8}", "pools: {all: {does: serve"),
    "sharding": ("sharding: zero1", "take it out"),
    "gather": ("gather: per-layer", "take it out"),
    "pipeline": ("pipeline: {micro_batch: 2}", "pools.NAME.layout.pp"),
    "recompute": ("recompute: full", "take it out"),
    "offload": ("offload: {activations: all}", "take it out"),
    "dtypes": ("dtypes: {gradient: fp32}", "quantise"),
    "seq_len": ("seq_len: 4096", "input_tokens and output_tokens"),
}


@pytest.mark.parametrize("field", TRAINING_KEYS)
def test_training_keys_are_refused_by_name(field):
    line, hint = TRAINING_KEYS[field]
    (found,) = problems_of(f"{POOLS}{line}\n").items()
    assert found[0] == field
    assert found[1].startswith("is a key of plans that train")
    assert hint in found[1]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("seq_len: 4096", "input_tokens"),
        ("global_batch: 64", "concurrency"),
        ("optimizer: adamw", "take it out"),
        ("precision: bf16", "quantise"),
        ("documents: 100", "take it out"),
        ("adapter: {rank: 8}", "take it out"),
    ],
)
def test_training_keys_of_the_workload_are_refused_by_name(key, hint):
    (found,) = problems_of(POOLS.replace("task: serve", f"task: serve, {key}")).items()
    assert found[0] == f"workload.{key.split(':')[0]}"
    assert found[1].startswith("is a key of plans that train")
    assert hint in found[1]


@pytest.mark.parametrize("key", ["dp_replicate", "dp_shard", "sequence_parallel", "rank_order", "context"])
def test_training_keys_of_a_layout_are_refused_by_name(key):
    (found,) = problems_of(POOLS.replace("{tp: 8, ep: 8}", f"{{tp: 8, ep: 8, {key}: 2}}")).items()
    assert found[0] == f"pools.fill.layout.{key}"
    assert found[1].startswith("is a key of plans that train")
    assert ("attention_dp" in found[1]) == key.startswith("dp")


@pytest.mark.parametrize("key", ["layouts: {a: {}}", "layers: {}", "states: {}", "calls: {}", "groups: {}"])
def test_keys_of_the_long_form_are_refused_by_name(key):
    (found,) = problems_of(f"{POOLS}{key}\n").items()
    assert found[0] == key.split(":")[0]
    assert found[1].startswith("is a key of plans that train")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("edges:", "route: {policy: least-loaded}\nedges:", "route"),
        ("edges:", "speculate: {draft: next-token-layers, tokens: 3}\nedges:", "speculate"),
        ("tpot_ms: 50", "tpot_ms: 50, percentile: 99", "workload.objectives.percentile"),
    ],
)
def test_keys_of_later_releases_are_refused_by_name(old, new, field):
    assert problems_of(POOLS.replace(old, new)) == {
        field: "is part of the plan language and not supported yet | take it out"
    }


SERVING_KEYS = {
    "pools": ("layout:", "pools: {a: {does: serve}}\nlayout:", "task: serve"),
    "route": ("layout:", "route: {policy: x}\nlayout:", "task: serve"),
    "speculate": ("layout:", "speculate: {tokens: 3}\nlayout:", "task: serve"),
    "workload.input_tokens": ("seq_len", "input_tokens: 8, seq_len", "seq_len"),
    "workload.output_tokens": ("seq_len", "output_tokens: 8, seq_len", "seq_len"),
    "workload.concurrency": ("seq_len", "concurrency: 8, seq_len", "global_batch"),
    "workload.rate_per_s": ("seq_len", "rate_per_s: 8, seq_len", "task: serve"),
    "workload.prefix_tokens": ("seq_len", "prefix_tokens: 8, seq_len", "task: serve"),
    "workload.lengths": ("seq_len", "lengths: [], seq_len", "task: serve"),
    "workload.objectives": ("seq_len", "objectives: {ttft_ms: 8}, seq_len", "task: serve"),
    "layout.attention_dp": ("{dp_replicate", "{attention_dp: 8, dp_replicate", "dp_replicate"),
}


@pytest.mark.parametrize("field", SERVING_KEYS)
def test_serving_keys_are_refused_in_a_plan_that_trains(field):
    old, new, hint = SERVING_KEYS[field]
    assert isinstance(parse_any_plan(TRAINS), ShortPlan)
    (found,) = problems_of(TRAINS.replace(old, new, 1)).items()
    assert found[0] == field
    assert found[1].startswith("is a key of serving plans")
    assert hint in found[1]


CONTRADICTIONS = [
    (ONE_POOL, "rate_per_s: 2.5", "rate_per_s: 2.5, concurrency: 8", "workload.rate_per_s", "concurrency"),
    (PHASES, "task: serve", "task: serve\n  input_tokens: 8", "workload.input_tokens", "lengths"),
    (PHASES, "task: serve", "task: serve\n  output_tokens: 8", "workload.output_tokens", "lengths"),
    (PHASES, "does: serve,", "does: serve, layout: {tp: 8},", "pools.all.layout", "layouts"),
    (PHASES, "does: serve,", "does: decode,", "pools.all.layouts", "does: serve"),
]


@pytest.mark.parametrize(("text", "old", "new", "field", "words"), CONTRADICTIONS)
def test_keys_that_contradict_each_other_are_refused(text, old, new, field, words):
    assert old in text
    found = problems_of(text.replace(old, new))
    assert list(found) == [field]
    assert words in found[field]


MISTAKES = [
    ("input_tokens: 1000, ", "", "workload.input_tokens", "is required | add `input_tokens: 1000`"),
    ("output_tokens: 200, ", "", "workload.output_tokens", "is required | add `output_tokens: 1000`"),
    ("input_tokens: 1000", "input_tokens: 0", "workload.input_tokens", "must be at least 1"),
    ("output_tokens: 200", "output_tokens: 0", "workload.output_tokens", "must be at least 1"),
    ("input_tokens: 1000", "input_tokens: 99999999999", "workload.input_tokens", "must be at most"),
    ("input_tokens: 1000", "input_tokens: 1.5", "workload.input_tokens", "must be a whole number"),
    ("input_tokens: 1000", "input_tokens: null", "workload.input_tokens", "has no value | add"),
    ("prefix_tokens: 100", "prefix_tokens: -1", "workload.prefix_tokens", "must be at least 0"),
    ("rate_per_s: 2.5", "rate_per_s: 0", "workload.rate_per_s", "must be more than 0"),
    ("rate_per_s: 2.5", "rate_per_s: 1e12", "workload.rate_per_s", "must be at most"),
    ("rate_per_s: 2.5", "concurrency: 0", "workload.concurrency", "must be at least 1"),
    ("rate_per_s: 2.5", "concurrency: 1.5", "workload.concurrency", "must be a whole number"),
    ("rate_per_s: 2.5", "objectives: {ttft_ms: 0}", "workload.objectives.ttft_ms", "must be more than 0"),
    ("task: serve, ", "", "workload.task", "is required | add `task: serve`"),
    ("task: serve", "task: serv", "workload.task", "must be 'serve' | did you mean serve?"),
    ("does: serve, ", "", "pools.all.does", "is required | add `does: serve`"),
    ("does: serve", "does: train", "pools.all.does", "must be 'serve', 'prefill' or 'decode'"),
    ("replicas: 2", "replicas: 0", "pools.all.replicas", "must be at least 1"),
    ("tp: 4", "tp: 0", "pools.all.layout.tp", "must be at least 1"),
    ("tp: 4", "tp: 10000000000", "pools.all.layout.tp", "must be at most"),
    ("tp: 4", "tpp: 4", "pools.all.layout.tpp", "did you mean tp"),
    ("tp: 4}", "tp: 4}, batching: {kv_fraction: 0}", "pools.all.batching.kv_fraction", "must be more than 0"),
    ("tp: 4}", "tp: 4}, batching: {kv_fraction: 1.5}", "pools.all.batching.kv_fraction", "must be at most 1"),
    ("tp: 4}", "tp: 4}, batching: {policy: static}", "pools.all.batching.policy", "must be 'continuous'"),
    ("tp: 4}", "tp: 4}, batching: {preempt: swap}", "pools.all.batching.preempt", "must be 'recompute'"),
    ("tp: 4}", "tp: 4}, quantise: {weights: fp9}", "pools.all.quantise.weights", "'fp8-block'"),
    ("tp: 4}", "tp: 4}, quantise: {kv: int4}", "pools.all.quantise.kv", "must be 'bf16', 'fp8', 'int8' or"),
    ("tp: 4}", "tp: 4}, overlap: ring", "pools.all.overlap", "'nano-batch'"),
    ("tp: 4}", "tp: 4}, allreduce: rings", "pools.all.allreduce", "did you mean ring"),
    ("  all: {does: serve, replicas: 2, layout: {tp: 4}}", "  {}", "pools", "must not be empty"),
    ("  all:", "  'two words':", "pools.two words", "letters, digits"),
    ("pools:", "tp: 4\npools:", "tp", "is a degree of a replica | pools.NAME.layout.tp"),
    ("pools:", "batching: {}\npools:", "batching", "is a key of a pool | pools.NAME.batching"),
    ("pools:", "edges: [{form: a, to: b}]\npools:", "edges.0.form", "did you mean from?"),
]


@pytest.mark.parametrize(("old", "new", "field", "expected"), MISTAKES)
def test_single_mistakes(old, new, field, expected):
    assert old in ONE_POOL
    assert expected in problems_of(ONE_POOL.replace(old, new))[field]


def test_all_problems_come_at_once():
    text = POOLS.replace("input_tokens: 4000", "rate_per_s: 3, optimizer: adamw").replace(
        "tp: 8, ep", "tpp: 8, ep"
    )
    assert list(problems_of(f"{text}layout: {{tp: 8}}\nroute: {{}}\n")) == [
        "workload.rate_per_s",
        "workload.input_tokens",
        "workload.optimizer",
        "pools.fill.layout.tpp",
        "layout",
        "route",
    ]


def test_a_plan_of_pools_is_no_plan_that_trains(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(POOLS, encoding="utf-8")
    assert load_any_plan(path) == serving(POOLS)
    for refused in (lambda: parse_plan(POOLS), lambda: load_plan(path), lambda: refuse_serving(POOLS, "p")):
        with pytest.raises(UnsupportedError) as caught:
            refused()
        (problem,) = caught.value.problems
        assert (problem.field, problem.value) == ("workload.task", "serve")
        assert "meshwright check" in problem.suggestion


@pytest.mark.parametrize("text", [TRAINS, "", "[", "0F0,0B0\n", "plan: 1\n"])
def test_what_is_no_serving_plan_is_left_to_others(text):
    refuse_serving(text, "p")


def test_a_file_that_was_cut_off_is_refused():
    text = dump_plan(serving(POOLS))
    (found,) = problems_of(text[: text.index("  write:")]).values()
    assert "pools to serve" in found
