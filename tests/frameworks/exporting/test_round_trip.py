"""What an exporter writes, an importer reads: the same plan comes back, in every field that the target can say."""

from pathlib import Path

import pytest
from export_cases import Case, case, short_plans
from hypothesis import HealthCheck, assume, given, settings

from meshwright.errors import UnsupportedError
from meshwright.frameworks.import_formats import FORMATS, detected
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan, States
from meshwright.verbs.import_ import ImportRequest, import_text

FILES = {"megatron": "megatron/args.sh", "torchtitan": "torchtitan/args.sh"}
UNSAID = {
    "torchtitan": {"zero2": ("zero3", "never reshard keeps parameters gathered, and shards them at rest")}
}


def imported(this: Case, target: str):
    text = this.to(target).files[FILES[target]]
    assert detected(text) == target
    short = this.short
    return import_text(text, ImportRequest(model=short.model, on=short.cluster))


def sayable(plan: LongPlan, target: str) -> LongPlan:
    """The plan without what the target can not tell apart: the stack, and torchtitan's zero2 from its zero3."""
    plain = plan.model_copy(update={"stack": ""})
    layout = next(iter(plan.layouts.values()))
    experts = layout.experts.edp_shard if layout.experts else 1
    if layout.grid.dp_shard * layout.grid.cp * experts == 1:
        return plain.model_copy(update={"states": States(), "gather": "per-layer"})
    if plan.sharding in UNSAID.get(target, {}):
        states = plain.states.model_copy(update={"parameter": plain.states.gradient})
        gather = "per-step" if plan.pipeline.ranks > 1 else "per-micro-batch"
        plain = plain.model_copy(update={"states": states, "gather": gather})
    if plain.sharding != "zero3":
        plain = plain.model_copy(update={"gather": "per-layer"})
    return plain


def long_of(plan, arch) -> LongPlan:
    return plan if isinstance(plan, LongPlan) else expand(plan, arch)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("target", FILES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(this=short_plans())
def test_the_plan_that_was_exported_comes_back(target, this):
    assume(not this.errors)
    try:
        back = imported(this, target)
    except UnsupportedError:
        assume(False)
    assert back.plan is not None, [str(p) for p in back.problems]
    assert not back.problems
    found = sayable(long_of(back.plan, this.model.architecture), target)
    wanted = sayable(this.plan, target)
    if target == "torchtitan" and wanted.gather != found.gather:
        once = wanted.pipeline.ranks == 1 and this.plan.workload.global_batch == (
            this.plan.pipeline.micro_batch * this.short.layout.dp_replicate * this.short.layout.dp_shard
        )
        assert once, "with one micro-batch there is only one moment to gather"
        found = found.model_copy(update={"gather": wanted.gather})
    assert found == wanted


def test_every_importer_of_a_target_is_held_here():
    here = Path(__file__).parent
    elsewhere = {name for name in FORMATS if (here / f"test_{name}_round_trip.py").exists()}
    assert set(FILES) | elsewhere == set(FORMATS)


def test_uneven_stages_come_back():
    this = case(
        layout={"pp": 4, "dp_shard": 4},
        sharding="zero1",
        pipeline={"schedule": "1f1b", "micro_batch": 1, "virtual_stages": 1},
    )
    uneven = this.plan.pipeline.model_copy(
        update={"stages": (("embed", "0..6"), ("7..15",), ("16..24",), ("25..31", "head"))}
    )
    plan = this.plan.model_copy(update={"pipeline": uneven})
    export = Case(plan, this.model, this.cluster, this.stack, this.short).to("megatron")
    back = import_text(export.files[FILES["megatron"]], ImportRequest(model=plan.model, on=plan.cluster))
    assert back.plan == plan
