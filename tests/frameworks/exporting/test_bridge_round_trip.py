"""What the exporter for Bridge writes, its importer reads, in each of the three forms that Bridge has."""

from bridge_cases import MODELS, exported, overrides, recipe, words
from export_cases import Case, case, short_plans
from hypothesis import HealthCheck, assume, given, settings
from test_round_trip import long_of, sayable

from meshwright.errors import UnsupportedError
from meshwright.frameworks.importing.plan_from_facts import Target, assemble
from meshwright.frameworks.megatron_bridge.importing.importer import import_bridge
from meshwright.stack.load import load_stack
from meshwright.stack.state_types import types_of, usual_types

TABLE = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def plan_of(foreign, this):
    target = Target(
        model=this.short.model,
        cluster=this.short.cluster,
        stack="megatron-bridge",
        devices=this.cluster.devices,
    )
    plan, _, problems = assemble(foreign, target, this.model.architecture)
    assert not problems
    precision = this.plan.workload.precision
    written = plan.dtypes.written if plan.dtypes else {}
    assert types_of(load_stack(target.stack), precision, written) == usual_types(this.stack, precision)
    return long_of(plan.model_copy(update={"dtypes": this.plan.dtypes}), this.model.architecture)


def exported_or_passed(this):
    assume(not this.errors)
    try:
        return exported(this)
    except UnsupportedError:
        assume(False)


@TABLE
@given(this=short_plans(models=MODELS))
def test_the_plan_that_was_exported_comes_back(this):
    export = exported_or_passed(this)
    foreign = import_bridge(export.files["bridge/overrides.yaml"])
    assert not foreign.problems
    assert not foreign.unread
    assert foreign.value("model") == this.short.model
    assert sayable(plan_of(foreign, this), "megatron") == sayable(this.plan, "megatron")


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(this=short_plans(models=MODELS))
def test_words_say_the_same_as_the_tree(this):
    export = exported_or_passed(this)
    tree = import_bridge(export.files["bridge/overrides.yaml"])
    line = import_bridge(f"{words(overrides(export))} --recipe {recipe(export)}")
    assert not line.problems
    assert {path: fact.value for path, fact in line.facts.items()} == {
        path: fact.value for path, fact in tree.facts.items()
    }


def test_facts_that_the_stack_runs_by_come_back():
    this = case(stack_name="megatron-bridge", layout={"dp_shard": 16}, sharding="zero1")
    foreign = import_bridge(exported(this).files["bridge/overrides.yaml"])
    assert foreign.value("stack") == "megatron-bridge"
    assert this.stack.gradient_communication_bytes == 2
    assert foreign.value("dtypes.reduce") == foreign.value("dtypes.gradient") == "16-bit"
    assert foreign.value("stack.overlap_gradient_reduction") is True
    assert foreign.value("stack.overlap_parameter_gather") is True


def test_the_script_that_starts_a_plan_names_model_and_devices():
    this = case("qwen3-30b-a3b", "h100-sxm-80gb x 32", layout={"dp_shard": 32, "ep": 8}, sharding="zero1")
    foreign = import_bridge(exported(this).files["bridge/launch.sh"])
    assert (foreign.value("model"), foreign.value("devices")) == ("qwen3-30b-a3b", 32)


def test_uneven_stages_come_back():
    this = case(layout={"pp": 4, "dp_shard": 4}, sharding="zero1")
    uneven = this.plan.pipeline.model_copy(
        update={"stages": (("embed", "0..6"), ("7..15",), ("16..24",), ("25..31", "head"))}
    )
    plan = this.plan.model_copy(update={"pipeline": uneven})
    export = exported(Case(plan, this.model, this.cluster, this.stack, this.short))
    foreign = import_bridge(export.files["bridge/overrides.yaml"])
    assert [stage.layers for stage in foreign.value("stages")] == [7, 9, 9, 7]
    assert sayable(plan_of(foreign, this), "megatron") == sayable(plan, "megatron")
