from dataclasses import replace

import pytest
from context_rule_cases import CONTEXT_CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import (
    DENSE,
    LATENT,
    MORE,
    NODE,
    SPARSE,
    STACK,
    changed,
    cluster,
    graph,
    long_plan,
    long_plans,
    short_plan,
    short_plans,
)
from routing_rule_cases import ROUTING_CASES

from meshwright.cluster.cluster import Cluster
from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import RULES, check_plan
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.stack_support import STACK_RULES

KNOBS = replace(
    STACK,
    schedules=("1f1b", "interleaved-1f1b", "zero-bubble", "zeropp"),
    schedule_knobs=("memory_limit", "unit"),
)
TWO_WAYS = {"schedule": "dualpipe", "virtual_stages": 2}
INTERLEAVED = {"schedule": "interleaved-1f1b", "virtual_stages": 2}
ZEROPP = {"schedule": "zeropp", "virtual_stages": 2}
BY_UNIT = replace(STACK, schedules=(*STACK.schedules, "zeropp"), pipeline_gathers=("per-step", "per-unit"))
POOL = cluster(64).pools[0]
TWO_POOLS = Cluster(name="two", pools=(replace(POOL, count=32), replace(POOL, name="other", count=32)))
WIDE = Cluster(name="wide", pools=(replace(POOL, node=replace(NODE, scaleup_domain=4)),))
BAD_ORDER = ("tp", "tp", "cp", "dp_shard", "pp")


def check(plan, architecture=DENSE, devices=64, stack=STACK):
    where = devices if isinstance(devices, Cluster) else cluster(devices)
    return check_plan(plan, graph(architecture), where, stack)


def legal(plan, **about):
    return [problem for problem in check(plan, **about) if problem.severity == "error"] == []


@pytest.mark.parametrize(
    ("layout", "keys", "architecture"),
    [
        ({"pp": 4, "dp_shard": 8, "tp": 2}, {}, DENSE),
        ({"pp": 4, "dp_shard": 8, "tp": 2}, {"pipeline": INTERLEAVED, "sharding": "zero3"}, DENSE),
        ({"dp_replicate": 2, "dp_shard": 4, "cp": 2, "tp": 4}, {"recompute": ["mlp", "core_attn"]}, DENSE),
        ({"dp_shard": 64}, {"sharding": "none", "recompute": "full"}, DENSE),
        ({"pp": 2, "dp_shard": 8, "tp": 4, "ep": 8}, {"recompute": ["moe_act"]}, SPARSE),
        ({"pp": 2, "dp_shard": 8, "tp": 4, "ep": 2, "etp": 4}, {}, SPARSE),
        ({"pp": 4, "dp_shard": 8, "tp": 2, "ep": 16}, {"recompute": ["mla_up_proj"]}, LATENT),
    ],
)
def test_good_plans_have_no_problem(layout, keys, architecture):
    plan = expand(short_plan(layout, **({} | keys | {"recompute": tuple_of(keys)})), architecture)
    assert check(plan, architecture) == []


def tuple_of(keys):
    value = keys.get("recompute", "none")
    return tuple(value) if isinstance(value, list) else value


# (plan, about, field, words of the rule, words of the suggestion)
SPREAD = {"pipeline": {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}}
FORM = "pipeline.schedule.vocabulary"
CASES = [
    *CONTEXT_CASES,
    *ROUTING_CASES,
    (long_plan({"pp": 1, "dp_shard": 8, "tp": 8}, **SPREAD), {}, FORM, "pp = 1", "pp: 2, or take it out"),
    (long_plan(workload={"task": "lora"}, **SPREAD), {}, FORM, "frozen tables", "take it out"),
    (long_plan(**SPREAD), {}, FORM, "test-stack@1.0 does not spread the vocabulary", "take it out"),
    (
        long_plan({"pp": 4, "dp_shard": 8, "tp": 4}),
        {},
        "layout",
        "pp·dp_replicate·dp_shard·cp·tp = 4·1·8·1·4 = 128 ≠ 64 devices",
        "dp_shard: 4",
    ),
    (
        long_plan({"pp": 3, "dp_shard": 8, "cp": 3}),
        {},
        "layout",
        "3·1·8·3·1 = 72 ≠ 64",
        "dp_shard: 64, pp: 1, cp: 1",
    ),
    (long_plan({"pp": 1, "dp_shard": 16}, sharding="none"), {}, "layout", "1·16·1·1·1", "dp_replicate: 64"),
    (
        long_plan({"pp": 32, "tp": 2}),
        {},
        "pipeline.virtual_stages",
        "pp·virtual_stages = 32 stages > 16 layers",
        "pp: 16, virtual_stages: 1",
    ),
    (long_plan({"rank_order": BAD_ORDER}), {}, "layout.rank_order", "each of tp, cp", "[tp, cp, dp_shard"),
    (long_plan({"tp": 64}), {}, "layout.tp", "heads % tp = 32 % 64 = 32 ≠ 0", "tp: 8"),
    (long_plan({"tp": 16, "dp_shard": 4}), {}, "layout.tp", "kv_heads % tp = 8 % 16 = 8 ≠ 0", "tp: 8"),
    (long_plan({"tp": 3}), {}, "layout.tp", "hidden % tp = 4096 % 3 = 1 ≠ 0", "tp: 2"),
    (long_plan({"tp": 3}), {}, "layout.tp", "ffn % tp = 14336 % 3 = 2 ≠ 0", "tp: 2"),
    (
        long_plan({"tp": 3}),
        {"architecture": LATENT},
        "layout.tp",
        "shared experts' ffn % tp = 2048 % 3 = 2 ≠ 0",
        "tp: 2",
    ),
    (
        long_plan({"tp": 8}),
        {"architecture": replace(DENSE, vocab=512)},
        "layout.tp",
        "512 is padded to 1024",
        "",
    ),
    (long_plan({"dp_shard": 64, "ep": 4}), {}, "layout.ep", "no experts, so ep·etp = 4·1 must be 1", "ep: 1"),
    (
        long_plan({"dp_shard": 64}),
        {"architecture": SPARSE},
        "layouts.main.experts",
        "need a mesh",
        "ep: 1, etp: 1 (edp_shard: 64, edp_replicate: 1)",
    ),
    (
        expand(short_plan({"dp_shard": 64, "ep": 16}), SPARSE),
        {"architecture": SPARSE},
        "layout.ep",
        "experts % ep = 8 % 16 = 8 ≠ 0",
        "ep: 8",
    ),
    (
        expand(short_plan({"dp_shard": 48, "etp": 3}), SPARSE),
        {"architecture": SPARSE, "devices": 48},
        "layout.etp",
        "experts' ffn % etp = 14336 % 3 = 2 ≠ 0",
        "etp: 2",
    ),
    (
        expand(short_plan({"pp": 16, "dp_shard": 4, "ep": 8}), SPARSE),
        {"architecture": SPARSE},
        "layout.ep",
        "ep·etp·edp_shard·edp_replicate = 8·1·1·1 = 8 ≠ dp_replicate·dp_shard·cp·tp = 1·4·1·1 = 4",
        "ep: 4, etp: 1 (edp_shard: 1, edp_replicate: 1)",
    ),
    (
        changed(long_plan({"dp_shard": 64}), states={}),
        {},
        "layouts.main.grid.dp_shard",
        "no state is sharded, so dp_shard must be 1",
        "dp_shard: 1, dp_replicate: 64",
    ),
    (long_plan({"dp_replicate": 64}), {}, "sharding", "so nothing is sharded", "dp_shard: 64"),
    (
        long_plan({"pp": 4, "dp_shard": 16}, pipeline=ZEROPP, sharding="zero1", gather="per-unit"),
        {"stack": BY_UNIT},
        "gather",
        "is for sharded parameters, and sharding = zero1 leaves them whole",
        "sharding: zero3, or take gather out",
    ),
    (
        long_plan({"pp": 4, "dp_shard": 16}, sharding="zero3", gather="per-unit"),
        {"stack": BY_UNIT},
        "gather",
        "1f1b has no units of micro-batches that go through a rank's stages together",
        "gather: per-step, or a schedule of interleaved-1f1b, looped-bfs, zeropp",
    ),
    (
        long_plan({"dp_shard": 64}, sharding="zero3", gather="per-unit"),
        {"stack": BY_UNIT},
        "gather",
        "1f1b has no units",
        "gather: per-layer, or",
    ),
    (
        long_plan({"pp": 4, "dp_shard": 16}, pipeline=ZEROPP, sharding="zero3", gather="per-unit"),
        {"stack": replace(BY_UNIT, pipeline_gathers=("per-step",))},
        "gather",
        "test-stack@1.0 gathers parameters per-step with pp = 4 > 1",
        "gather: per-step",
    ),
    (
        changed(long_plan(), layers={"embed": {"layout": "main"}, "0..9": {"layout": "main"}}),
        {},
        "layers",
        "no rule for 10..15",
        "add",
    ),
    (
        long_plan({"dp_shard": 8, "tp": 8}, workload={"seq_len": 4100}),
        {},
        "workload.seq_len",
        "with sequence_parallel seq_len % (cp·tp) = 4100 % 8 = 4 ≠ 0",
        "seq_len: 4096",
    ),
    (long_plan(workload={"seq_len": 16384}), {}, "workload.seq_len", "16384 > max_positions 8192", "8192"),
    (
        long_plan({"dp_shard": 64}, workload={"global_batch": 100}),
        {},
        "workload.global_batch",
        "global_batch % (dp_replicate·dp_shard·micro_batch) = 100 % (1·64·1) = 36 ≠ 0",
        "global_batch: 128 (gives 2 micro-batches)",
    ),
    (
        long_plan({"dp_shard": 64}, pipeline={"micro_batch": 2}),
        {},
        "workload.global_batch",
        "less than one micro-batch for each of 64 replicas",
        "global_batch: 128 (gives 1 micro-batches)",
    ),
    (long_plan({"dp_shard": 64}, pipeline=INTERLEAVED), {}, "pipeline.schedule", "needs pp > 1", "1f1b"),
    (
        long_plan(pipeline={"schedule": "interleaved-1f1b"}),
        {},
        "pipeline.schedule",
        "needs virtual_stages > 1",
        "virtual_stages: 2",
    ),
    (
        long_plan(pipeline={"virtual_stages": 2}),
        {},
        "pipeline.virtual_stages",
        "1f1b has one stage per pipeline rank, and virtual_stages = 2",
        "interleaved-1f1b",
    ),
    (
        long_plan(pipeline=INTERLEAVED, workload={"global_batch": 48}),
        {},
        "workload.global_batch",
        "micro-batches % pp = 6 % 4 = 2, must be 0",
        "global_batch: 32 (gives 4 micro-batches)",
    ),
    (long_plan(workload={"global_batch": 16}), {}, "layout.pp", "2 micro-batches < pp = 4", "32"),
    (long_plan(), {"stack": replace(STACK, pp=False)}, "layout.pp", "test-stack@1.0 has no pp", "pp: 1"),
    (
        long_plan(pipeline=INTERLEAVED),
        {"stack": replace(STACK, schedules=("gpipe", "1f1b"))},
        "pipeline.schedule",
        "does not run this schedule",
        "1f1b",
    ),
    (
        long_plan(sharding="zero2"),
        {"stack": replace(STACK, shardings=("none", "zero1"))},
        "sharding",
        "does not shard this way",
        "zero1",
    ),
    (
        long_plan(sharding="zero3"),
        {"stack": replace(STACK, pipeline_shardings=("none", "zero1"))},
        "sharding",
        "does not run zero3 with pp = 4 > 1",
        "one of none, zero1",
    ),
    (long_plan(recompute=("moe",)), {}, "recompute", "dense has no operator of this kind", "core_attn"),
    (long_plan(recompute=("shared_experts",)), {}, "recompute", "does not recompute this", "one of"),
    (
        long_plan(workload={"precision": "fp8"}),
        {},
        "workload.precision",
        "test-device has no fp8 matrix units (it has fp32, bf16)",
        "bf16",
    ),
    (long_plan(), {"devices": TWO_POOLS}, "cluster", "a cluster of 2 pools", "equal devices"),
    (
        long_plan({"dp_shard": 64, "sequence_parallel": True}),
        {},
        "layout.sequence_parallel",
        "tp = 1",
        "sequence_parallel: false",
    ),
    (
        expand(short_plan({"dp_shard": 16, "tp": 4, "sequence_parallel": False}), SPARSE),
        {"architecture": SPARSE},
        "layout.sequence_parallel",
        "experts with tp = 4 > 1 need sequence parallelism",
        "sequence_parallel: true",
    ),
    (long_plan({"dp_shard": 8, "tp": 8}), {"devices": WIDE}, "layout.tp", "spans 8 ranks", "tp: 4 or less"),
    (
        long_plan({"dp_shard": 8, "tp": 8, "rank_order": ("pp", "cp", "dp_shard", "tp", "dp_replicate")}),
        {},
        "layout.tp",
        "a tp group spans 64 ranks, a scale-up domain has 8 devices",
        "tp first in rank_order",
    ),
    (
        long_plan(workload={"task": "lora"}),
        {"stack": replace(STACK, name="meshwright")},
        "workload.task",
        "can be predicted, not run yet",
        "adapter: {form: lora}",
    ),
    (
        long_plan(pipeline={"schedule": {"name": "1f1b", "memory_limit": 0.5}}),
        {},
        "pipeline.schedule.memory_limit",
        "1f1b does not look at it",
        "take it out, or a schedule that does: zero-bubble, zb-v",
    ),
    (
        long_plan(pipeline={"schedule": {"name": "zero-bubble", "unit": 4}}),
        {"stack": KNOBS},
        "pipeline.schedule.unit",
        "zero-bubble does not look at it",
        "take it out, or a schedule that does: interleaved-1f1b, looped-bfs, zeropp",
    ),
    (
        long_plan(pipeline={"schedule": {"name": "zero-bubble", "memory_limit": 0.2}}),
        {"stack": KNOBS},
        "pipeline.schedule.memory_limit",
        "memory_limit·pp = 0.2·4 = 0.8 < 1 micro-batch, the least that a rank holds",
        "memory_limit: 0.25",
    ),
    (
        long_plan(pipeline=INTERLEAVED | {"schedule": {"name": "interleaved-1f1b", "unit": 3}}),
        {"stack": KNOBS},
        "pipeline.schedule.unit",
        "pp = 4 ≤ unit = 3 ≤ micro-batches = 8 must hold",
        "unit: 4",
    ),
    (
        long_plan(pipeline=INTERLEAVED | {"schedule": {"name": "interleaved-1f1b", "unit": 4}}),
        {"stack": replace(STACK, schedule_knobs=("memory_limit",))},
        "pipeline.schedule.unit",
        "test-stack@1.0 has no choice of it",
        "take it out",
    ),
    (
        long_plan({"pp": 2, "dp_shard": 32}, workload={"global_batch": 96}, pipeline=TWO_WAYS),
        {},
        "workload.global_batch",
        "3 % 2 = 1, must be 0",
        "global_batch: 64 (gives 2 micro-batches)",
    ),
    (
        long_plan({"pp": 3, "dp_shard": 16}, pipeline=TWO_WAYS),
        {},
        "layout.pp",
        "dualpipe needs pp % 2 = 3 % 2 = 0",
        "pp: 4",
    ),
    *MORE,
]


@pytest.mark.parametrize("schedule", ["interleaved-1f1b", "looped-bfs", "zeropp"])
def test_schedules_with_units_gather_by_them_where_the_stack_does(schedule):
    pipeline = {"schedule": schedule, "virtual_stages": 2}
    plan = long_plan({"pp": 4, "dp_shard": 16}, pipeline=pipeline, sharding="zero3", gather="per-unit")
    assert check(plan, stack=replace(BY_UNIT, schedules=(schedule,))) == []


def test_all_that_is_wrong_with_a_gather_by_unit_is_said_at_once():
    plan = long_plan({"pp": 4, "dp_shard": 16}, sharding="zero1", gather="per-unit")
    assert [problem.field for problem in check(plan)] == ["gather"] * 2


@pytest.mark.parametrize(("plan", "about", "field", "rule", "suggestion"), CASES)
def test_every_rule_names_field_equation_and_remedy(plan, about, field, rule, suggestion):
    found = [(p.field, p.rule, p.suggestion) for p in check(plan, **about)]
    assert any(f == field and rule in r and suggestion in s for f, r, s in found), found


FURTHER = ("exchange_support", "axis_rules", "combination_rules", "state_share", "state_space_layers")
OWN_CASES = ("adapters", "encoder_models", "forward_only", "recompute_by_stack", "states_in_chunks", *FURTHER)
"""Modules whose rules have their cases in test files of their own."""


def test_every_rule_has_a_case():
    def cases():
        for plan, about, *_ in CASES:
            where = about.get("devices", 64)
            where = where if isinstance(where, Cluster) else cluster(where)
            model = graph(about.get("architecture", DENSE))
            yield RuleInput(plan, model, where, about.get("stack", STACK))

    rules = [r for r in (*RULES, *STACK_RULES) if r.__module__.rpartition(".")[2] not in OWN_CASES]
    silent = [rule.__name__ for rule in rules if not any(list(rule(case)) for case in cases())]
    assert silent == []


def test_all_problems_come_at_once():
    plan = long_plan({"pp": 5, "tp": 3}, workload={"precision": "fp8"}, recompute=("moe_act",))
    fields = {problem.field for problem in check(plan)}
    assert {"layout", "layout.tp", "workload.precision", "recompute"} <= fields


def test_a_plan_beyond_the_short_form_is_told_in_long_words():
    plan = changed(long_plan({"pp": 4, "dp_shard": 4, "tp": 3}), groups={"fast": {"devices": "*"}})
    layout = plan.layouts["main"].model_dump() | {"on": "fast"}
    fields = {problem.field for problem in check(changed(plan, layouts={"main": layout}))}
    assert {"layouts.main", "layouts.main.grid.tp"} <= fields


def test_learned_positions_end_where_others_only_degrade():
    plan = long_plan(workload={"seq_len": 16384})
    assert legal(plan)
    assert not legal(plan, architecture=replace(DENSE, positions="learned"))
    assert check(plan, replace(DENSE, positions="alibi")) == []


@pytest.mark.parametrize(
    ("schedule", "chunks"),
    [
        ({"name": "zero-bubble", "memory_limit": 0.25}, 1),
        ({"name": "zero-bubble", "memory_limit": 7}, 1),
        ({"name": "interleaved-1f1b", "unit": 8}, 2),
        ({"name": "zeropp", "unit": 5}, 2),
    ],
)
def test_knobs_that_a_schedule_looks_at_may_be_turned(schedule, chunks):
    plan = long_plan(pipeline={"schedule": schedule, "virtual_stages": chunks})
    assert check(plan, stack=KNOBS) == []


def test_a_named_unit_frees_interleaving_from_whole_rounds():
    """Six micro-batches over four ranks: no multiple of pp, and one unit of six."""
    chosen = {"schedule": {"name": "interleaved-1f1b", "unit": 6}, "virtual_stages": 2}
    assert check(long_plan(pipeline=chosen, workload={"global_batch": 48}), stack=KNOBS) == []


small = st.sampled_from((1, 2, 3, 4, 8, 16))


@settings(max_examples=200, deadline=None)
@given(
    degrees=st.tuples(small, small, small, small, small),
    devices=st.sampled_from((1, 2, 4, 8, 16, 64)),
    shape=st.tuples(
        st.sampled_from((1, 6, 16, 64)), st.sampled_from((1, 2, 3)), st.sampled_from((48, 96, 1024))
    ),
    schedule=st.sampled_from(
        (("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("interleaved-1f1b", 1), ("interleaved-1f1b", 2))
    ),
    fit=st.booleans(),
)
def test_legal_means_what_the_equations_say(degrees, devices, shape, schedule, fit):
    pp, dp_replicate, dp_shard, cp, tp = degrees
    batch, micro, seq_len = shape
    name, virtual = schedule
    product = pp * dp_replicate * dp_shard * cp * tp
    devices = product if fit else devices
    plan = long_plan(
        {"pp": pp, "dp_replicate": dp_replicate, "dp_shard": dp_shard, "cp": cp, "tp": tp},
        workload={"seq_len": seq_len, "global_batch": batch},
        pipeline={"schedule": name, "micro_batch": micro, "virtual_stages": virtual},
    )
    replicas = dp_replicate * dp_shard
    micro_batches = batch / (replicas * micro)
    expected = (
        product == devices
        and tp in (1, 2, 4, 8)
        and pp * virtual <= 16
        and seq_len % (2 * cp if cp > 1 else 1) == 0
        and (tp == 1 or seq_len % (cp * tp) == 0)
        and micro_batches.is_integer()
        and (
            virtual == 1
            if name != "interleaved-1f1b"
            else virtual == 2 and pp > 1 and micro_batches % pp == 0
        )
    )
    assert legal(plan, devices=devices) == expected


@settings(max_examples=36, deadline=None)
@given(short_plans() | long_plans(), st.sampled_from((DENSE, SPARSE, LATENT)), st.integers(1, 2**40))
def test_no_plan_makes_the_check_raise(plan, architecture, devices):
    long = plan if not hasattr(plan, "layout") else expand(plan, architecture)
    found = check(long, architecture, devices)
    assert all(problem.field and problem.rule and str(problem) for problem in found)


def test_absurd_numbers_are_problems_not_exceptions():
    layout = {"dp_shard": 2**20}
    grid = dict.fromkeys(("dp_replicate", "dp_shard", "cp", "tp"), 2**20)
    huge = changed(
        long_plan(layout),
        layouts={"main": {"grid": grid, "order": ("tp", "cp", "dp_shard", "dp_replicate", "pp")}},
        pipeline={"placement": (10**40,), "micro_batch": 2**20, "schedule": {"name": "1f1b"}},
        workload={"seq_len": 10**40, "global_batch": -(10**40)},
        layers={"0..999999999": {"layout": "main"}},
    )
    assert len(check(huge, LATENT)) > 8
