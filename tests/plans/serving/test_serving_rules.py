"""Every law of serving plans, with a plan that breaks it and one that does not."""

from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import DENSE, LATENT, SPARSE
from serving_cases import ONE_POOL, PHASES, POOLS, serving, serving_files

from meshwright.errors import PlanError
from meshwright.plans.serving.expand_pools import expand_pools
from meshwright.plans.serving.resolve_serving import SERVING_RULES, resolve_serving, serving_problems
from meshwright.plans.serving.rules.serving_rule_input import ServingRuleInput

ALL = "pools.all"


def found_in(text, *changes):
    """Problems by field, as rule and suggestion; warnings have their severity in front."""
    try:
        found = resolve_serving(serving(text, *changes)).warnings
    except PlanError as error:
        found = error.problems
    return {
        problem.field: f"{'' if problem.severity == 'error' else 'warning: '}{problem.rule} | {problem.suggestion}"
        for problem in found
    }


@pytest.mark.parametrize("text", [POOLS, ONE_POOL, PHASES])
def test_the_shared_plans_are_legal(text):
    assert found_in(text) == {}


CASES = [
    # widths, layers and experts of a replica
    (ONE_POOL, "tp: 4", "tp: 3", f"{ALL}.layout.tp", "ffn % tp = 28672 % 3 = 1 ≠ 0 | tp: 2"),
    (ONE_POOL, "tp: 4", "pp: 81", f"{ALL}.layout.pp", "pp > 80 layers of the model | pp: 80"),
    (ONE_POOL, "tp: 4", "tp: 4, ep: 4", f"{ALL}.layout.ep", "the model has no experts, so ep must be 1"),
    (ONE_POOL, "tp: 4", "tp: 4, etp: 4", f"{ALL}.layout.etp", "the model has no experts, so etp must be 1"),
    (PHASES, "{tp: 8}", "{tp: 8, ep: 8}", f"{ALL}.layouts.decode.ep", "the model has no experts"),
    (
        POOLS,
        "tp: 8, ep: 8",
        "tp: 8, ep: 4, etp: 4",
        "pools.fill.layout.ep",
        "ep·etp = 4·4 = 16 ≠ cp·tp·attention_dp = 1·8·1 = 8 | ep: 4, etp: 2",
    ),
    (
        POOLS,
        "tp: 8, ep: 8",
        "tp: 8, etp: 2",
        "pools.fill.layout.ep",
        "ep·etp = 1·2 = 2 ≠ cp·tp·attention_dp = 1·8·1 = 8 | ep: 1, etp: 8",
    ),
    (
        POOLS,
        "tp: 8, ep: 8",
        "attention_dp: 12, ep: 12",
        "pools.fill.layout.ep",
        "experts % ep = 256 % 12 = 4 ≠ 0 | ep: 4",
    ),
    (
        POOLS,
        "tp: 8, ep: 8",
        "attention_dp: 12",
        "pools.fill.layout.etp",
        "experts' ffn % etp = 2048 % 12 = 8 ≠ 0 | etp: 8",
    ),
    # devices
    (
        POOLS,
        "replicas: 2",
        "replicas: 4",
        "pools",
        "Σ replicas·devices = 4·8 + 1·16 = 48 > 40 devices of the cluster | pools.fill.replicas: 3",
    ),
    (ONE_POOL, "x 16", "x 2", "pools", "2·4 = 8 > 2 devices of the cluster | a cluster of 8 devices"),
    (PHASES, "pp: 2, tp: 4", "tp: 4", f"{ALL}.layouts", "= 1·1·4·1 = 4 of prefill ≠ pp·cp·tp·attention_dp"),
    # hand-overs
    (POOLS, "from: fill", "from: fil", "edges.0.from", "is no pool of the plan | did you mean fill?"),
    (POOLS, "to: write", "to: wrote", "edges.0.to", "is no pool of the plan | did you mean write?"),
    (POOLS, "from: fill, to: write", "from: write, to: fill", "edges.0.to", "pool fill does prefill"),
    (POOLS, "[{from", "[{from: fill, to: write}, {from", "edges.1", "stands there twice | take it out"),
    (
        POOLS,
        "edges: [{from: fill, to: write, carry: kv}]",
        "edges: []",
        "pools.fill.does",
        "hands its caches to no pool | edges: [{from: fill, to: write, carry: kv}]",
    ),
    (
        POOLS,
        "edges: [{from: fill, to: write, carry: kv}]",
        "edges: []",
        "pools.write.does",
        "gets caches from no pool | edges: [{from: fill, to: write, carry: kv}]",
    ),
    (ONE_POOL, "does: serve", "does: prefill", f"{ALL}.does", "no pool does decode | does: serve, or"),
    (ONE_POOL, "does: serve", "does: decode", f"{ALL}.does", "no pool does prefill | does: serve, or"),
    (
        ONE_POOL,
        "pools:",
        "edges: [{from: all, to: all}]\npools:",
        "edges.0.from",
        "pool all serves: it keeps the caches that it fills, and has no edges | take the edge out",
    ),
    # limits of a batch
    (
        POOLS,
        "max_sequences: 64",
        "max_sequences: 15",
        "pools.write.batching.max_sequences",
        "max_sequences = 15 < attention_dp = 16: each rank has sequences of its own | max_sequences: 16",
    ),
    (
        POOLS,
        "chunk_tokens: 16384",
        "chunk_tokens: 15",
        "pools.fill.batching.chunk_tokens",
        "chunk_tokens = 15 < block_tokens = 16: a chunk fills whole blocks | chunk_tokens: 16",
    ),
    # requests
    (PHASES, "share: 0.25", "share: 0.5", "workload.lengths", "shares sum to 1.25, not 1 | shares 0.6, 0.4"),
    (
        ONE_POOL,
        "prefix_tokens: 100",
        "prefix_tokens: 1000",
        "workload.prefix_tokens",
        "prefix_tokens = 1000 ≥ 1000 tokens of the shortest prompt | prefix_tokens: 999",
    ),
    (
        PHASES,
        "task: serve",
        "task: serve\n  prefix_tokens: 500",
        "workload.prefix_tokens",
        "prefix_tokens = 500 ≥ 500 tokens of the shortest prompt | prefix_tokens: 499",
    ),
    (
        ONE_POOL,
        "input_tokens: 1000",
        "input_tokens: 131072",
        "workload.input_tokens",
        "warning: input_tokens + output_tokens = 131072 + 200 > max_positions 131072 of the model | "
        "input_tokens: 130872",
    ),
    (
        PHASES,
        "input_tokens: 4000",
        "input_tokens: 200000",
        "workload.lengths",
        "warning: input_tokens + output_tokens = 200000 + 20 > max_positions",
    ),
    (
        POOLS,
        "output_tokens: 1000",
        "output_tokens: 1",
        "pools.write.does",
        "warning: requests write one token, in prefill: the pool has nothing to do",
    ),
    (
        POOLS,
        "output_tokens: 1000",
        "output_tokens: 1",
        "workload.objectives.tpot_ms",
        "warning: requests write one token, so there is no time of a further one | take it out",
    ),
    # names
    (ONE_POOL, "stack: vllm", "stack: megatron-core", "stack", "is no engine that serves | one of"),
    (ONE_POOL, "stack: vllm", "stack: vlm", "stack", "is no engine that serves | did you mean vllm?"),
    (ONE_POOL, "stack: vllm", "stack: vllm@", "stack", "has no release behind @ | stack: vllm"),
    (ONE_POOL, "llama-3.1-70b", "llama-3.1-71b", "model", "did you mean"),
    (ONE_POOL, "h100-sxm-80gb x 16", "h100-sxm-8gb x 16", "cluster.device", "did you mean"),
]


@pytest.mark.parametrize(("text", "old", "new", "field", "words"), CASES)
def test_a_broken_law_is_named_with_its_numbers_and_a_remedy(text, old, new, field, words):
    found = found_in(text, (old, new))
    assert field in found
    assert words in found[field]


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (ONE_POOL, "tp: 4", "tp: 8"),
        (ONE_POOL, "replicas: 2, layout: {tp: 4}", "layout: {tp: 16}"),
        (ONE_POOL, "tp: 4", "pp: 8"),
        (ONE_POOL, "tp: 4", "attention_dp: 4, ep: 1, etp: 1"),
        (ONE_POOL, "stack: vllm", "stack: vllm@0.11.0"),
        (ONE_POOL, "stack: vllm\n", ""),
        (ONE_POOL, "prefix_tokens: 100", "prefix_tokens: 999"),
        (ONE_POOL, "tp: 4}", "tp: 4}, batching: {kv_fraction: 1.0, chunk_tokens: 16}"),
        (POOLS, "tp: 8, ep: 8", "tp: 8"),
        (POOLS, "replicas: 2", "replicas: 3"),
        (POOLS, "max_sequences: 64", "max_sequences: 16"),
        (PHASES, "share: 0.25", "share: 0.2500004"),
    ],
)
def test_legal_neighbours(text, old, new):
    assert found_in(text, (old, new)) == {}


def test_requests_of_one_token_need_no_edge():
    changes = ("does: serve", "does: prefill"), ("output_tokens: 200", "output_tokens: 1")
    assert found_in(ONE_POOL, *changes) == {}


def test_problems_of_names_and_of_laws_come_together():
    found = found_in(POOLS, ("deepseek-v3", "deepsek-v9"), ("fill, to", "fil, to"), ("x 40", "x 8"))
    assert {"model", "edges.0.from", "pools"} <= found.keys()


def test_devices_without_a_pool_are_counted():
    resolved = resolve_serving(serving(POOLS))
    assert (resolved.cluster.devices, resolved.plan.devices, resolved.idle_devices) == (40, 32, 8)


@settings(max_examples=80, deadline=None)
@given(
    file=serving_files(),
    arch=st.sampled_from((None, DENSE, SPARSE, LATENT)),
    devices=st.none() | st.integers(1, 4096),
)
def test_laws_judge_every_file(file, arch, devices):
    """What is not refused satisfies the equations; every problem names a field and says what to write."""
    plan = expand_pools(file, experts=arch is not None and arch.moe is not None)
    problems = list(serving_problems(ServingRuleInput(plan, arch, devices)))
    assert all(problem.field and problem.rule and problem.suggestion for problem in problems)
    fields = {problem.field for problem in problems if problem.severity == "error"}
    if devices is not None:
        assert ("pools" in fields) == (sum(pool.devices for pool in plan.pools.values()) > devices)
    for name, pool in plan.pools.items():
        inside = {field for field in fields if field.startswith(f"pools.{name}.layout")}
        if arch is None or inside:
            continue
        for layout in pool.layouts.values():
            ranks = prod((layout.cp, layout.tp, layout.attention_dp))
            assert layout.ep * layout.etp == (ranks if arch.moe else 1)
            assert arch.heads % layout.tp == 0
            assert arch.kv_heads % layout.tp == 0 or layout.tp % arch.kv_heads == 0 or arch.latent
            assert layout.pp <= arch.layers
            assert arch.moe is None or arch.moe.experts % layout.ep == 0


def test_every_rule_is_broken_by_a_case():
    silent = set(SERVING_RULES)
    for text, old, new, *_ in CASES:
        base = resolve_serving(serving(text))
        arch, devices = base.model.architecture, base.cluster.devices
        plan = expand_pools(serving(text, (old, new)), experts=arch.moe is not None)
        silent = {rule for rule in silent if not list(rule(ServingRuleInput(plan, arch, devices)))}
    assert not silent
