"""Closed forms against the simulated Program on a lattice of 2,400 small plans over every axis.

Some plans of each family are in every test run, all of them in a proof.

Bytes (traffic by category, memory by kind) are equal; the step time differs by less than 3 %.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from lattice_plans import (
    CLUSTERS,
    CONTEXTS,
    DELAYED,
    DELAYED_UNITS,
    ENCODER_MODELS,
    LINEAR_MODELS,
    MODELS,
    SEQ_LEN,
    SPLIT,
    STACKS,
    STATE_SPACE_MODELS,
    TURNED_SPLIT,
    TURNED_WHOLE,
    TWICE,
    WHOLE,
    WITH_UNITS,
    family,
    in_other_contexts,
    spread_plans,
)
from plan_comparison import hold_together
from step_traffic import array_traffic

from meshwright.cost.closed_form.evaluate_plans import evaluate, pipeline_groups
from meshwright.cost.memory.rank_ledgers import host_bytes
from meshwright.model.operators.blocks import build_graph
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.context_parallel import context_in_full
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.host_offload import Offload
from meshwright.program.program import matrix_elements
from meshwright.schedules.choice import ScheduleChoice
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.stack.state_types import with_types
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.expert_routing import Routing
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.packed_documents import Documents

PLANS_PER_FAMILY = 50
IN_CONTEXTS = 6
SOME = 4
WITH_EACH = 12
"""Plans among which each schedule with units is drawn."""
COUNTS = pytest.mark.parametrize(
    "count", [SOME, pytest.param(PLANS_PER_FAMILY, marks=pytest.mark.slow)], ids=["some", "all"]
)
"""The first plans of a family in every test run, all of them in a proof."""
FURTHER_COUNTS = pytest.mark.parametrize("count", [SOME, pytest.param(3 * SOME, marks=pytest.mark.slow)])
SPREAD_PER_FAMILY = 20
EACH = ("none", "zero2", "zero3")
EXCHANGES = {
    "reduced behind each pass": {"reduces_each_micro_batch": EACH, "overlap_gradient_reduction": False},
    "gathered at once": {"zero2_cuts_parameters": True, "gradient_reduction": "all-reduce"},
    "layer by layer": {
        "reduces_each_micro_batch": EACH,
        "zero2_cuts_parameters": True,
        "gathers_layers_ahead": True,
        "recomputes_exchanges": True,
    },
}
"""Facts of stacks that change when and how states are exchanged."""
EXPERTS_EXCHANGES = {
    "copies go once": {"deduplicates_exchange": True},
    "beside compute": {"overlap_expert_exchange": True},
    "once and beside compute": {"deduplicates_exchange": True, "overlap_expert_exchange": True},
}
"""What a stack may do with the exchange of tokens and experts."""
BESIDE = {
    "beside compute": {},
    "one after the other": {"overlap_parameter_gather": False, "overlap_gradient_reduction": False},
    "reductions beside compute": {"overlap_parameter_gather": False},
}
"""What runs beside compute in a stack."""
MIXTURES = {
    "early layers": lambda place: "full" if place < 0.4 else "none",
    "late layers some": lambda place: "none" if place < 0.7 else ("mlp", "core_attn"),
    "every other layer": lambda place: ("full", "selective", "none")[int(100 * place) % 3],
}
"""What a layer recomputes by its place between the ends."""
NARROW_STATES = (
    {"gradient": "fp32", "reduce": "bf16", "first_moment": "bf16", "second_moment": "fp8"},
    {"master": "none", "first_moment": "fp16", "second_moment": "fp16", "reduce": "fp32"},
)
"""Element types that differ from the stack's, with and without scales."""
CAPACITIES = (
    Capacity(factor=1.1, pad=True),
    Capacity(factor=0.8, scope="sequence"),
    Capacity(factor=1.3, scope="micro-batch"),
)


def of_all_families(test):
    """Parametrise a test by model, cluster and stack."""
    for name, values in (("model", MODELS), ("cluster", CLUSTERS), ("stack", STACKS)):
        test = pytest.mark.parametrize(name, values)(test)
    return test


@pytest.mark.slow
def test_the_lattice_is_large_and_covers_every_axis():
    plans = [
        plan for f in product(MODELS, CLUSTERS, STACKS) for plan in family(*f, PLANS_PER_FAMILY, seed=0).plans
    ]
    assert len(plans) >= 2000
    apart = {
        "node_order",
        "expert_order",
        "context",
    }  # of links that differ (tests/cost/operators/test_slow_links.py), and below
    axes = set(type(plans[0].layout).model_fields) - apart
    degrees = {axis: {getattr(plan.layout, axis) for plan in plans} for axis in axes}
    assert degrees["pp"] == {1, 2, 3, 4, 6, 8}
    assert degrees["tp"] == {1, 2, 4, 8}
    assert all(len(values) >= 2 for values in degrees.values())
    assert {plan.sharding for plan in plans} == {"none", "zero1", "zero2", "zero3"}
    assert {plan.pipeline.schedule for plan in plans} == {"gpipe", "1f1b", "interleaved-1f1b"}
    assert {plan.pipeline.virtual_stages for plan in plans} == {1, 2, 4}
    assert {plan.pipeline.micro_batch for plan in plans} == {1, 2, 4}
    assert len({plan.recompute for plan in plans}) == 6


@pytest.mark.quick_cases(5)
@COUNTS
@of_all_families
def test_closed_forms_equal_the_simulated_program(model, cluster, stack, count):
    hold_together(family(model, cluster, stack, count, seed=0))


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cluster", ["h100-sxm-80gb x 8", "h100-sxm-80gb x 24"])
@pytest.mark.parametrize("stack", ["megatron-zero-bubble", "generic"])
def test_closed_forms_equal_the_simulated_program_with_split_backward_passes(model, cluster, stack, count):
    hold_together(family(model, cluster, stack, count, seed=0, schedules=SPLIT))


@pytest.mark.quick_cases(2)
@of_all_families
def test_closed_forms_equal_the_simulated_program_in_every_form_of_context_parallelism(model, cluster, stack):
    chosen = in_other_contexts(family(model, cluster, stack, PLANS_PER_FAMILY, seed=0), IN_CONTEXTS)
    assert len(chosen.plans) == IN_CONTEXTS
    hold_together(chosen)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("model", MODELS)
def test_closed_forms_equal_the_simulated_program_with_packed_documents(model):
    chosen = family(model, "h100-sxm-80gb x 8", "generic", PLANS_PER_FAMILY, seed=0)
    chosen = in_other_contexts(chosen, IN_CONTEXTS)
    packed = replace(chosen.setting.workload, documents=Documents((SEQ_LEN // 5, 40)))
    hold_together(replace(chosen, setting=replace(chosen.setting, workload=packed)))


@pytest.mark.quick_cases(2)
@COUNTS
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("model", LINEAR_MODELS)
@pytest.mark.parametrize("cluster", ["h100-sxm-80gb x 8", "a100-sxm-80gb x 16"])
def test_closed_forms_equal_the_simulated_program_with_linear_attention(cluster, model, schedules, count):
    hold_together(family(model, cluster, "megatron-core", count, seed=0, schedules=schedules))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("model", STATE_SPACE_MODELS)
@pytest.mark.parametrize("stack", ["generic", "meshwright", "megatron-lm-2021"])
def test_closed_forms_equal_the_simulated_program_with_state_spaces(stack, model, schedules):
    hold_together(family(model, "h100-sxm-80gb x 8", stack, PLANS_PER_FAMILY, seed=0, schedules=schedules))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("model", ENCODER_MODELS)
@pytest.mark.parametrize("stack", ["generic", "meshwright", "megatron-lm-2021"])
def test_closed_forms_equal_the_simulated_program_with_an_encoder(stack, model, schedules):
    hold_together(family(model, "h100-sxm-80gb x 8", stack, PLANS_PER_FAMILY, seed=0, schedules=schedules))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("documents", [None, Documents((SEQ_LEN // 5, 40))], ids=["whole", "packed"])
@pytest.mark.parametrize("model", LINEAR_MODELS)
@pytest.mark.parametrize("stack", ["megatron-lm-2021", "generic"])
def test_closed_forms_equal_the_simulated_program_with_states_passed(stack, model, documents):
    chosen = family(model, "h100-sxm-80gb x 8", stack, PLANS_PER_FAMILY, seed=0)
    chosen = in_other_contexts(chosen, 2 * len(CONTEXTS))
    forms = {plan.layout.context_in_full.form for plan in chosen.plans}
    assert forms == {context_in_full(form).form for form in CONTEXTS}
    packed = replace(chosen.setting.workload, documents=documents)
    hold_together(replace(chosen, setting=replace(chosen.setting, workload=packed)))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("written", NARROW_STATES, ids=str)
@pytest.mark.parametrize("model", MODELS)
@FURTHER_COUNTS
def test_closed_forms_equal_the_simulated_program_with_narrow_states(count, model, written):
    chosen = family(model, "h100-sxm-80gb x 8", "generic", count, seed=0)
    plans = [plan.model_copy(update={"dtypes": Dtypes.model_validate(written)}) for plan in chosen.plans]
    stack = with_types(chosen.setting.stack, chosen.setting.workload.precision, written)
    assert stack.base is not None
    hold_together(replace(chosen, plans=plans, setting=replace(chosen.setting, stack=stack)))


@pytest.mark.parametrize("said", ["balanced", 0.8], ids=str)
def test_closed_forms_equal_the_simulated_program_where_routing_is_told(said):
    chosen = family("sparse", "h100-sxm-80gb x 8", "generic", SOME, seed=0)
    told = replace(chosen.setting.workload, routing=Routing(said))
    hold_together(replace(chosen, setting=replace(chosen.setting, workload=told)))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("capacity", CAPACITIES, ids=str)
@pytest.mark.parametrize("routing", [None, Routing(0.8)], ids=str)
def test_closed_forms_equal_the_simulated_program_where_experts_drop_tokens(routing, capacity):
    chosen = family("sparse", "h100-sxm-80gb x 8", "generic", SOME, seed=0)
    bounded = replace(chosen.setting.workload, routing=routing, capacity=capacity)
    hold_together(replace(chosen, setting=replace(chosen.setting, workload=bounded)))


@pytest.mark.slow
def test_those_families_have_every_form():
    families = (
        in_other_contexts(family(*of, PLANS_PER_FAMILY, seed=0), IN_CONTEXTS)
        for of in product(MODELS, CLUSTERS, STACKS)
    )
    found = {str(plan.layout.context_in_full) for of in families for plan in of.plans}
    assert found == {str(context_in_full(form)) for form in CONTEXTS}


@pytest.mark.quick_cases(1)
@COUNTS
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "schedules", [TURNED_WHOLE, TURNED_SPLIT, DELAYED], ids=["whole", "split", "delayed"]
)
def test_closed_forms_equal_the_simulated_program_with_knobs_turned(schedules, model, count):
    enough = max(count, 12)
    chosen = family(model, "h100-sxm-80gb x 8", "generic", enough, seed=3, schedules=schedules)
    used = {plan.pipeline.choice for plan in chosen.plans if plan.layout.pp > 1}
    assert used == set(schedules)
    hold_together(chosen)


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cluster", ["h100-sxm-80gb x 8", "h100-sxm-80gb x 24"])
@pytest.mark.parametrize("stack", ["megatron-zero-bubble", "torchtitan", "deepspeed", "generic"])
def test_closed_forms_equal_the_simulated_program_with_parameters_held_twice(model, cluster, stack, count):
    hold_together(family(model, cluster, stack, count, seed=0, schedules=TWICE))


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("cluster", ["a100-sxm-80gb x 16", "h100-sxm-80gb x 24"])
def test_closed_forms_equal_the_simulated_program_with_adapters(model, cluster, count):
    chosen = family(model, cluster, "megatron-core", count, seed=1)
    setting = replace(chosen.setting, model=with_adapters(chosen.setting.model))
    hold_together(replace(chosen, setting=setting))


@pytest.mark.quick_cases(1)
@COUNTS
@pytest.mark.parametrize("model", MODELS)
def test_closed_forms_equal_the_simulated_program_with_layers_that_predict_further_tokens(model, count):
    chosen = family(model, "a100-sxm-80gb x 16", "megatron-core", count, seed=4)
    further = replace(chosen.setting.model.architecture, next_token_layers=2)
    hold_together(replace(chosen, setting=replace(chosen.setting, model=build_graph(further))))


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT, TWICE], ids=["whole", "split", "twice"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("facts", EXCHANGES)
def test_closed_forms_equal_the_simulated_program_whenever_a_stack_exchanges_states(
    facts, model, schedules, count
):
    chosen = family(model, "a100-sxm-80gb x 16", "generic", count, seed=2, schedules=schedules)
    setting = chosen.setting
    changed = replace(setting, stack=replace(setting.stack, **EXCHANGES[facts]))
    hold_together(replace(chosen, setting=changed))


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT], ids=["whole", "split"])
@pytest.mark.parametrize("facts", EXPERTS_EXCHANGES)
def test_closed_forms_equal_the_simulated_program_however_experts_exchange(facts, schedules, count):
    """Copies that go once are other bytes where experts are exchanged, and nowhere else."""
    chosen = family("sparse", "h100-sxm-80gb x 24", "generic", count, seed=8, schedules=schedules)
    setting, plans = chosen.setting, from_shorts(list(chosen.plans))
    changed = replace(setting, stack=replace(setting.stack, **EXPERTS_EXCHANGES[facts]))
    hold_together(replace(chosen, setting=changed))
    with_facts, plain = array_traffic(plans, changed), array_traffic(plans, setting)
    once = changed.stack.deduplicates_exchange
    assert all(np.array_equal(with_facts[name], plain[name]) for name in plain if name != "ep")
    others = with_facts["ep"] != plain["ep"]
    assert not others[plans.ep == 1].any()
    assert others.any() == once
    quicker, usual = evaluate(plans, changed).step_s, evaluate(plans, setting).step_s
    assert (quicker <= usual * (1 + 1e-9)).all()
    alone = (plans.ep == 1) & (plans.etp == 1)
    assert (quicker[alone] == usual[alone]).all()
    assert (quicker < usual).any()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("beside", list(BESIDE))
@pytest.mark.parametrize("cluster", ["a100-sxm-80gb x 16", "h100-sxm-80gb x 24"])
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("schedules", [WITH_UNITS, DELAYED_UNITS], ids=["usual", "delayed"])
@pytest.mark.parametrize("count", [WITH_EACH, pytest.param(PLANS_PER_FAMILY // 2, marks=pytest.mark.slow)])
def test_closed_forms_equal_the_simulated_program_unit_by_unit(schedules, model, cluster, beside, count):
    chosen = family(model, cluster, "meshwright", count, seed=4, schedules=schedules)
    assert len({plan.pipeline.choice for plan in chosen.plans}) == len(schedules)
    setting = chosen.setting
    changed = replace(setting, stack=replace(setting.stack, **BESIDE[beside]))
    hold_together(replace(chosen, setting=changed))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("gather", ["per-layer", "per-micro-batch", "per-step"])
@pytest.mark.parametrize("model", MODELS)
def test_closed_forms_equal_the_simulated_program_whenever_a_plan_gathers(model, gather):
    chosen = family(model, "h100-sxm-80gb x 24", "generic", PLANS_PER_FAMILY, seed=1)
    cut = [plan for plan in chosen.plans if plan.sharding == "zero3"]
    assert len(cut) >= 4
    hold_together(
        replace(chosen, plans=tuple(plan.model_copy(update={"gather": gather}) for plan in cut[:SOME]))
    )


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT, TWICE], ids=["whole", "split", "twice"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stack", ["megatron-zero-bubble", "generic", "meshwright"])
def test_closed_forms_equal_the_simulated_program_where_steps_overlap(stack, model, schedules, count):
    afterwards = tuple(ScheduleChoice(name, step_validation="after") for name in schedules)
    chosen = family(model, "h100-sxm-80gb x 24", stack, count, seed=5, schedules=afterwards)
    hold_together(replace(chosen, plans=tuple(plan for plan in chosen.plans if plan.layout.pp > 1)))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT])
@pytest.mark.parametrize("stack", ["megatron-zero-bubble", "generic", "meshwright"])
@pytest.mark.parametrize("model", list(MODELS))
def test_closed_forms_equal_the_simulated_program_with_a_spread_vocabulary(stack, model, schedules):
    chosen = family(model, "h100-sxm-80gb x 24", stack, SPREAD_PER_FAMILY, seed=3, schedules=schedules)
    plans = tuple(spread_plans(chosen))
    assert len(plans) >= SPREAD_PER_FAMILY // 3
    hold_together(replace(chosen, plans=plans))


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT, TWICE], ids=["whole", "split", "twice"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mixture", MIXTURES)
def test_closed_forms_equal_the_simulated_program_where_layers_recompute_different_things(
    mixture, model, schedules, count
):
    chosen = family(model, "h100-sxm-80gb x 24", "generic", count, seed=4, schedules=schedules)
    layers = MODELS[model].architecture.layers
    of_layers = tuple(MIXTURES[mixture](layer / layers) for layer in range(layers))
    hold_together(replace(chosen, of_layers=of_layers))


OFFLOADS = (Offload(activations=0.4), Offload(activations="all"), Offload(activations=0.5, ahead=3))
OFFLOADED = {
    "whole": ("generic", 5, (*WHOLE, *TURNED_WHOLE)),
    "split": ("generic", 0, (*SPLIT, *TURNED_SPLIT)),
    "delayed": ("generic", 0, DELAYED),
    "twice": ("generic", 0, TWICE),
    "by unit": ("meshwright", 4, WITH_UNITS),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("kind", list(OFFLOADED))
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("offload", OFFLOADS)
def test_closed_forms_equal_the_simulated_program_with_activations_on_the_host(kind, model, offload):
    stack, seed, schedules = OFFLOADED[kind]
    chosen = family(model, "h100-sxm-80gb x 24", stack, SOME, seed=seed, schedules=schedules)
    hold_together(offloading(chosen, offload))


STATES_ON_HOSTS = (
    Offload(optimizer="all"),
    Offload(optimizer=0.3),
    Offload(optimizer=0.7, parameters=0.4),
    Offload(parameters="all"),
    Offload(activations="all", optimizer="all", parameters="all"),
)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("kind", list(OFFLOADED))
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("offload", STATES_ON_HOSTS, ids=str)
def test_closed_forms_equal_the_simulated_program_with_states_on_the_host(kind, model, offload):
    stack, seed, schedules = OFFLOADED[kind]
    chosen = family(model, "h100-sxm-80gb x 24", stack, SOME, seed=seed, schedules=schedules)
    hold_together(
        replace(chosen, plans=tuple(plan.model_copy(update={"offload": offload}) for plan in chosen.plans))
    )


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("keeps", [False, True], ids=["leave", "kept"])
@pytest.mark.parametrize("offload", STATES_ON_HOSTS[:3], ids=str)
@pytest.mark.parametrize("facts", EXCHANGES)
def test_closed_forms_equal_the_simulated_program_with_states_on_the_host_whenever_exchanged(
    facts, offload, keeps
):
    chosen = family("sparse", "a100-sxm-80gb x 16", "generic", 3 * SOME, seed=2)
    setting = chosen.setting
    changed = replace(setting.stack, **EXCHANGES[facts], keeps_offloaded_gradients=keeps)
    plans = tuple(plan.model_copy(update={"offload": offload}) for plan in chosen.plans)
    hold_together(replace(chosen, plans=plans, setting=replace(setting, stack=changed)))


@pytest.mark.slow
@pytest.mark.parametrize("offload", OFFLOADS)
@pytest.mark.parametrize("schedules", [WHOLE, SPLIT])
def test_closed_forms_equal_the_simulated_program_with_activations_on_the_host_and_a_spread_vocabulary(
    offload, schedules
):
    chosen = family("untied", "h100-sxm-80gb x 24", "generic", SPREAD_PER_FAMILY, seed=3, schedules=schedules)
    hold_together(offloading(replace(chosen, plans=tuple(spread_plans(chosen))), offload))


def test_a_plan_that_has_nothing_to_copy_takes_as_long_as_one_that_does_not_offload():
    chosen = family("tied", "h100-sxm-80gb x 8", "generic", SOME, seed=5, schedules=("1f1b",))
    alone = [plan for plan in chosen.plans if plan.layout.pp == 1]
    assert alone
    offloads = [plan.model_copy(update={"offload": OFFLOADS[1]}) for plan in alone]
    for only_fitting in (False, True):  # what does not fit has no time then
        with_copies, without = (
            evaluate(from_shorts(plans), chosen.setting, only_fitting=only_fitting)
            for plans in (offloads, alone)
        )
        assert with_copies.step_s == pytest.approx(without.step_s, rel=1e-12)
        assert np.array_equal(with_copies.total_bytes, without.total_bytes)


def offloading(chosen, offload):
    """The family with activations on the host; something goes out in many of the plans."""
    plans = tuple(plan.model_copy(update={"offload": offload}) for plan in chosen.plans)
    groups = (group for _, group in pipeline_groups(from_shorts(list(plans)), chosen.setting))
    assert sum(bool(host_bytes(group).any()) * len(group.plans) for group in groups) >= len(plans) / 4
    return replace(chosen, plans=plans)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer("lion"),
        Optimizer("sgd"),
        Optimizer("muon"),
        Optimizer("muon", (("tensor", "duplicated"),)),
        Optimizer("muon", (("tensor", "distributed"), ("others", "lion"))),
    ],
    ids=str,
)
@pytest.mark.parametrize("model", MODELS)
@FURTHER_COUNTS
def test_closed_forms_equal_the_simulated_program_with_other_optimizers(count, model, optimizer):
    chosen = family(model, "h100-sxm-80gb x 8", "generic", count, seed=0)
    workload = replace(chosen.setting.workload, optimizer=optimizer)
    stack = with_types(chosen.setting.stack, workload.precision, {}, optimizer)
    setting = replace(chosen.setting, stack=stack, workload=workload)
    hold_together(replace(chosen, setting=setting))
    for plan in chosen.plans[:SOME]:
        program, _ = lower_and_simulate(chosen.long(plan), setting)
        of_matrices = sum(matrix_elements(program, rank) for rank in range(program.pipeline_ranks))
        assert (of_matrices > 0) == (optimizer.name == "muon")
