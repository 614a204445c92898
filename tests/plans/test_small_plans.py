"""Small copies of plans: legal, small enough, and with everything that the plan does."""

import random
from itertools import combinations

import pytest
from encoder_cases import INPUTS, encoder_model

from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError
from meshwright.plans.forms.conversion import expand, short_of_only_layout
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.uneven_partition import written_stages
from meshwright.plans.resolve import resolve, resolve_with
from meshwright.plans.rules.stack_limits.meshwright import unsupported_by_runtime
from meshwright.plans.shrink.features import micro_batches, stage_counts
from meshwright.plans.shrink.small_plans import small_plans
from meshwright.program.expert_dispatch.dispatch_forms import exchange_form
from meshwright.schedules.generators import SCHEDULES
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.verify import program_of

MODELS = ("llama-3.1-70b", "gpt-3-175b", "gemma-2-27b", "qwen3-32b", "bloom-176b", "mistral-7b-v0.3")
ORDERS = (
    ("tp", "cp", "dp_shard", "dp_replicate", "pp"),
    ("pp", "dp_shard", "tp", "cp", "dp_replicate"),
)
LIMITS = (1, 2, 4, 8, 16)
FEWEST = 24


def plan_of(model, layout, **keys):
    layout = {"pp": 1, "tp": 1, "dp_shard": 1, "dp_replicate": 1} | layout
    devices = layout["pp"] * layout["tp"] * layout["dp_shard"] * layout["dp_replicate"]
    data = {
        "plan": 1,
        "model": model,
        "cluster": f"h100-sxm-80gb x {devices}",
        "stack": OWN_STACK,
        "workload": {"seq_len": 2048, "global_batch": 256},
        "layout": layout,
    }
    return resolve(ShortPlan.model_validate(data | keys))


def test_a_vocabulary_that_is_spread_stays_spread_where_there_is_a_pipeline():
    pipeline = {"schedule": {"name": "v-half", "vocabulary": "vocab-2"}, "virtual_stages": 2}
    layout = {"pp": 4, "dp_shard": 2, "tp": 2, "dp_replicate": 2}
    large = plan_of("gemma-2-27b", layout, pipeline=pipeline, sharding="zero1")
    small = small_plans(large.long, large.setting.model, 8).plans
    assert {bool(plan.long.choice.vocabulary) for plan in small} == {True, False}
    for plan in small:
        assert plan.long.choice.vocabulary == ("vocab-2" if "pp" in plan.features else None)


def test_experts_stay_in_an_order_where_they_are_on_several_ranks():
    layout = {"pp": 2, "dp_shard": 8, "ep": 8, "expert_order": (tuple(range(128))[::-1],)}
    large = plan_of("qwen3-30b-a3b", layout, sharding="zero1")
    small = small_plans(large.long, large.setting.model, 8).plans
    orders = {plan.long.layouts["main"].expert_order for plan in small if plan.ranks > 1}
    assert any(order and any(row != tuple(sorted(row)) for row in order) for order in orders)
    for plan in small:
        found = program_of(plan, load_stack(OWN_STACK)).parts.only.expert_orders
        assert any(found) == ("expert_order" in plan.features and "ep" in plan.features)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_activations_go_to_the_host_in_small_plans_too(schedule):
    layout, offload = {"pp": 8, "dp_shard": 2, "tp": 4}, {"activations": 0.5, "ahead": 3}
    large = plan_of(
        "llama-3.1-70b", layout, sharding="zero1", offload=offload, pipeline={"schedule": schedule}
    )
    found = small_plans(large.long, large.setting.model, 8)
    assert found.features["offload"].text == "activations wait on the host: 0.5, 3 passes ahead"
    piped = [plan for plan in found.plans if "pp" in plan.features]
    assert piped
    for plan in piped:
        assert plan.long.pipeline.ranks >= 4
        actions = [action for actions in program_of(plan, load_stack(OWN_STACK)).lists for action in actions]
        assert any(action.kind == "OFFLOAD" for action in actions)


def random_plan(draw):
    schedule = draw.choice(list(SCHEDULES))
    kind = SCHEDULES[schedule]
    chunks = kind.fixed_chunks or (draw.choice((2, 3)) if kind.chunked else 1)
    tp, sharding = draw.choice((1, 1, 2, 8)), draw.choice(("none", "zero1", "zero2", "zero3"))
    gathers = ("per-layer", "per-unit" if kind.usual_unit else "per-step")
    layout = {
        "pp": draw.choice((1, 2, 3, 8)),
        "tp": tp,
        "dp_shard": draw.choice((1, 2, 8)),
        "dp_replicate": draw.choice((1, 1, 2, 4)),
        "sequence_parallel": tp > 1 and draw.random() < 0.5,
        "rank_order": draw.choice(ORDERS),
    }
    return plan_of(
        draw.choice(MODELS),
        layout,
        sharding=sharding,
        gather=draw.choice(gathers) if sharding == "zero3" else None,
        pipeline={"schedule": schedule, "virtual_stages": chunks, "micro_batch": draw.choice((1, 2))},
        recompute=draw.choice(("none", "selective", "full", ("mlp",))),
    )


@pytest.fixture(scope="module")
def plans():
    draw, found = random.Random("plans to shrink"), []
    while len(found) < FEWEST:
        try:
            found.append(random_plan(draw))
        except InputError:
            continue
    return found


def test_every_small_plan_is_legal_and_fits(plans):
    for resolved in plans:
        for limit in LIMITS:
            for small in small_plans(resolved.long, resolved.setting.model, limit).plans:
                assert small.ranks <= limit
                cluster = load_cluster(small.long.cluster)
                assert cluster.devices == small.ranks
                again = resolve_with(small.long, small.model, cluster, load_stack(OWN_STACK))
                assert unsupported_by_runtime(again.long, small.model) == []


def test_every_three_features_meet_on_eight_ranks(plans):
    for resolved in plans:
        found = small_plans(resolved.long, resolved.setting.model, 8)
        assert found.covering.not_covered == ()
        met = {
            frozenset(one)
            for small in found.plans
            for size in range(1, 4)
            for one in combinations(small.features, size)
        }
        assert met >= {frozenset(one) for size in range(1, 4) for one in combinations(found.features, size)}


def test_a_feature_of_a_small_plan_is_there(plans):
    for resolved in plans:
        large = short_of_only_layout(resolved.long)
        for small in small_plans(resolved.long, resolved.setting.model, 8).plans:
            short, layout = short_of_only_layout(small.long), short_of_only_layout(small.long).layout
            for axis in ("pp", "dp_replicate", "dp_shard", "tp"):
                assert (getattr(layout, axis) > 1) == (axis in small.features)
            assert short.recompute == large.recompute
            assert layout.rank_order == large.layout.rank_order
            assert small.model.tied_gradients == resolved.setting.model.tied_gradients
            if layout.pp > 1:
                assert short.pipeline.schedule == large.pipeline.schedule
                uneven = len(set(stage_counts(resolved.long, resolved.setting.model))) > 1
                assert (len(set(stage_counts(small.long, small.model))) > 1) == uneven
            if layout.dp_shard > 1:
                assert short.sharding == large.sharding
                by_unit = resolved.long.gather == "per-unit"
                assert small.long.gather == (
                    "per-layer" if by_unit and layout.pp == 1 else resolved.long.gather
                )
            if layout.tp > 1:
                assert layout.sequence_parallel == large.layout.sequence_parallel
                assert small.model.architecture.vocab % layout.tp


def test_micro_batches_are_enough_for_the_schedule_and_no_more_than_the_plan_has(plans):
    for resolved in plans:
        most = micro_batches(short_of_only_layout(resolved.long), resolved.long)
        for small in small_plans(resolved.long, resolved.setting.model, 8).plans:
            short = short_of_only_layout(small.long)
            count = micro_batches(short, small.long)
            assert 1 <= count <= min(most, 2 * short.layout.pp)
            assert count == min(most, 2 * short.layout.pp) or count % short.layout.pp == 0


def test_a_head_with_a_stage_of_its_own_has_one_in_the_small_plan():
    resolved = plan_of("llama-3.1-70b", {"pp": 8, "dp_replicate": 4})
    stages = written_stages((11, 11, 11, 12, 12, 12, 11, 0))
    pipeline = resolved.long.pipeline.model_copy(update={"stages": stages})
    long = resolved.long.model_copy(update={"pipeline": pipeline})
    (small,) = small_plans(long, resolved.setting.model, 8).plans
    counts = stage_counts(small.long, small.model)
    assert len(counts) == 4
    assert counts[-1] == 0
    assert len(set(counts[:-1])) == 2


def test_ranks_that_are_left_make_the_pipeline_longer():
    resolved = plan_of("llama-3.1-8b", {"pp": 8, "tp": 2})
    (small,) = small_plans(resolved.long, resolved.setting.model, 8).plans
    assert short_of_only_layout(small.long).layout.pp == 4
    (pair,) = small_plans(resolved.long, resolved.setting.model, 4).plans
    assert short_of_only_layout(pair.long).layout.pp == 2


def test_shrinking_is_the_same_every_time(plans):
    for resolved in plans[:10]:
        once, again = (small_plans(resolved.long, resolved.setting.model, 4) for _ in range(2))
        assert once == again


def test_copies_that_are_handed_on_inside_of_nodes_are_so_in_small_plans():
    layout = {"dp_shard": 8, "tp": 2, "ep": 8, "etp": 2}
    large = plan_of("mixtral-8x7b", layout, sharding="zero1", stack="megatron-bridge")
    found = small_plans(large.long, large.setting.model, 8, forwarding=True)
    (small,) = (plan for plan in found.plans if {"ep", "etp"} <= {*plan.features})
    program = program_of(small, large.setting.stack)
    assert exchange_form(program.parts.only.shape, program.stack) == "hierarchical"
    assert program.parts.only.expert_grid.sizes["etp"] == 2
    assert small.text.startswith("dp_shard 4 tp 2 ep 4 etp 2, nodes of 4, ")
    plain = small_plans(large.long, large.setting.model, 8)
    forms = [
        exchange_form(program.parts.only.shape, program.stack)
        for program in (program_of(plan, large.setting.stack) for plan in plain.plans)
    ]
    assert set(forms) == {"once-per-rank"}


def test_an_optimizer_keeps_its_options_and_blocks_are_said_to_give_other_numbers():
    written = {"name": "muon", "steps": 3, "tensor": "blockwise"}
    work = {"seq_len": 2048, "global_batch": 256, "optimizer": written}
    large = plan_of("llama-3.1-70b", {"tp": 4, "dp_shard": 4}, workload=work, sharding="zero1")
    small = small_plans(large.long, large.setting.model, 4)
    assert "other numbers than one device" in small.features["optimizer"].text
    for plan in small.plans:
        assert plan.long.workload.optimizer_in_full == large.long.workload.optimizer_in_full
        assert "muon (steps 3, tensor blockwise)" in plan.text
    work |= {"optimizer": written | {"tensor": "duplicated"}}
    other = plan_of("llama-3.1-70b", {"tp": 4, "dp_shard": 4}, workload=work, sharding="zero1")
    features = small_plans(other.long, other.setting.model, 4).features
    assert "other numbers" not in features["optimizer"].text


@pytest.mark.parametrize(
    ("name", "layout"), [("t5", {"tp": 4, "dp_shard": 16}), ("vl", {"pp": 4, "tp": 4, "dp_shard": 4})]
)
def test_small_plans_have_small_inputs_for_an_encoder(name, layout):
    large = ShortPlan(
        plan=1,
        model=name,
        cluster="h100-sxm-80gb x 64",
        stack=OWN_STACK,
        workload={"seq_len": 2048, "global_batch": 64, **INPUTS[name]},
        layout=layout,
        sharding="zero1",
    )
    graph = encoder_model(name)
    plans = small_plans(expand(large, graph.architecture), graph, 8).plans
    for small in plans:
        assert "encoder" in small.features
        again = resolve_with(small.long, small.model, load_cluster(small.long.cluster), load_stack(OWN_STACK))
        workload = again.setting.workload
        assert workload.encoder_lengths.tokens != workload.seq_len
        if workload.images is not None:
            encoder = small.model.architecture.encoder
            assert workload.images.per_sequence > 1
            assert len(set(workload.images.windows(encoder.merge, encoder.window))) > 1
        assert str(workload.images or workload.encoder_tokens) in small.text
