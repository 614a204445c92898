from dataclasses import replace

from export_cases import case, cluster, problem_fields

from meshwright.frameworks.exporting.uniform_plan import read_uniform


def test_degrees_batches_and_stages_are_read() -> None:
    this = case(
        layout={"pp": 2, "dp_replicate": 2, "dp_shard": 2, "tp": 2},
        sharding="zero1",
        pipeline={"micro_batch": 2, "schedule": "interleaved-1f1b", "virtual_stages": 4},
    )
    plan = read_uniform(this.plan, this.model)
    assert (plan.devices, plan.dp, plan.virtual_stages) == (16, 4, 4)
    assert plan.micro_batches * plan.micro_batch * plan.dp == 128
    assert [stage.count for stage in plan.stages] == [4] * 8
    assert plan.order == ("tp", "dp_shard", "dp_replicate", "pp")


def test_a_shard_over_one_rank_is_no_shard() -> None:
    this = case(layout={"dp_replicate": 16}, sharding="zero1")
    assert this.plan.sharding == "zero1"
    assert read_uniform(this.plan, this.model).sharding == "none"


def test_the_cluster_must_be_filled() -> None:
    this = case(layout={"dp_shard": 8}, sharding="zero1")
    assert problem_fields(this, "megatron") == {"layout"}


def test_nodes_must_be_full_unless_there_is_only_one() -> None:
    part = case(devices="h100-sxm-80gb x 12", workload={"global_batch": 120}, layout={"dp_shard": 12})
    assert problem_fields(part, "megatron") == {"cluster"}
    lone = case(devices="h100-sxm-80gb x 4", layout={"dp_shard": 4}).to("megatron")
    assert "--nproc-per-node 4" in lone.files["megatron/launch.sh"]


def test_several_pools_are_refused() -> None:
    one = cluster("h100-sxm-80gb x 8").pool
    this = case()
    mixed = replace(this, cluster=replace(this.cluster, pools=(one, replace(one, name="second"))))
    assert problem_fields(mixed, "megatron") == {"cluster"}


def test_layers_that_predict_further_tokens_are_refused_where_the_target_has_no_words() -> None:
    this = case()
    further = replace(this.model.architecture, next_token_layers=1)
    model = replace(this.model, architecture=further)
    assert problem_fields(replace(this, model=model), "deepspeed") == {"model"}
    assert replace(this, model=model).to("megatron").files


def test_the_summary_is_one_line() -> None:
    this = case()
    named = this.plan.model_copy(update={"model": "two\nlines"})
    summary = read_uniform(named, this.model).summary()
    assert "\n" not in summary
    assert summary.startswith(
        "two lines on h100-sxm-80gb x 16: pp=1 dp_replicate=16 dp_shard=1 cp=1 tp=1 none"
    )


def test_a_plan_without_a_short_form_is_refused_in_long_words() -> None:
    this = case(layout={"dp_shard": 16}, sharding="zero3")
    layouts = {
        "elsewhere": this.plan.layouts["main"].model_copy(update={"order": this.plan.layouts["main"].order})
    }
    layers = {key: rule.model_copy(update={"layout": "elsewhere"}) for key, rule in this.plan.layers.items()}
    stages = (("embed", "0..31", "head"),)
    pipeline = this.plan.pipeline.model_copy(update={"stages": stages})
    long = this.plan.model_copy(update={"layouts": layouts, "layers": layers, "pipeline": pipeline})
    smaller = replace(this, plan=long, cluster=cluster("h100-sxm-80gb x 8"))
    assert problem_fields(smaller, "megatron") == {"layouts.elsewhere"}
