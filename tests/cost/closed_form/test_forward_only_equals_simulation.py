"""Closed forms against the simulated Program for plans without backward passes: equal bytes, times within 3 %."""

from dataclasses import replace

import pytest
from lattice_plans import MODELS, SEQ_LEN, family
from plan_comparison import hold_together

from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.short import OptimizerSpec, WorkloadSpec
from meshwright.stack.state_types import with_types
from meshwright.workload.optimizer_choice import Optimizer

PLANS_PER_FAMILY, SOME = 50, 4
COUNTS = pytest.mark.parametrize(
    "count", [SOME, pytest.param(PLANS_PER_FAMILY, marks=pytest.mark.slow)], ids=["some", "all"]
)


@pytest.mark.quick_cases(3)
@COUNTS
@pytest.mark.parametrize("written", [{}, {"master": "fp32"}], ids=["alone", "master copy"])
@pytest.mark.parametrize("perturbations", ["both", "split"])
@pytest.mark.parametrize("model", MODELS)
def test_closed_forms_equal_the_simulated_program_without_backward_passes(
    model, perturbations, written, count
):
    hold_together(forward_only_family(model, perturbations, written, count))


def test_offloaded_parameters_are_priced_alike_without_backward_passes():
    chosen = forward_only_family("tied", "both", {}, SOME)
    offload = Offload(parameters="all")
    plans = tuple(plan.model_copy(update={"offload": offload}) for plan in chosen.plans)
    hold_together(replace(chosen, plans=plans))


def forward_only_family(model, perturbations, written, count):
    """Plans without backward passes: one stage a rank, nothing recomputed, no states but parameters."""
    optimizer = Optimizer("zo-sgd", (("perturbations", perturbations),))
    chosen = family(model, "h100-sxm-80gb x 8", "generic", PLANS_PER_FAMILY, seed=1)
    plans = []
    for plan in chosen.plans:
        sharding = "none" if plan.sharding in ("none", "zero1") else "zero3"
        layout, pipeline = plan.layout, plan.pipeline
        if pipeline.virtual_stages > 1 or (perturbations == "split" and layout.dp_replicate % 2):
            continue
        gather = "per-layer" if sharding == "zero3" else None
        plans.append(plan.model_copy(update={"sharding": sharding, "gather": gather, "recompute": "none"}))
    workload = replace(chosen.setting.workload, optimizer=optimizer)
    stack = with_types(chosen.setting.stack, workload.precision, written, optimizer)
    dtypes = Dtypes(**written) if written else None
    header = WorkloadSpec(
        seq_len=SEQ_LEN,
        global_batch=workload.global_batch,
        optimizer=OptimizerSpec(name="zo-sgd", perturbations=perturbations),
    )
    plans = [plan.model_copy(update={"workload": header, "dtypes": dtypes}) for plan in plans]
    assert len(plans) >= SOME
    return replace(
        chosen,
        setting=replace(chosen.setting, stack=stack, workload=workload),
        plans=tuple(plans[:count]),
    )
