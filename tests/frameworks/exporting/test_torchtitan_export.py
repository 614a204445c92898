from dataclasses import replace

import pytest
from export_cases import Case, array, case, degree, problem_fields, short_plans, torchtitan_options
from hypothesis import HealthCheck, assume, given, settings

from meshwright.errors import UnsupportedError
from meshwright.frameworks.option_names import option_names
from meshwright.plans.forms.long import Schedule, States

SHIPPED = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "qwen3-32b", "deepseek-v3", "gpt-oss-20b")
P, T = "--parallelism.", "--training."


@given(this=short_plans(SHIPPED))
@settings(max_examples=24, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_the_degrees_and_batches_of_the_plan_can_be_read_back(this: Case) -> None:
    assume(not this.errors)
    try:
        export = this.to("torchtitan")
    except UnsupportedError:
        assume(False)
    found, short = torchtitan_options(export), this.short
    layout = short.layout
    degrees = {
        f"{P}tensor_parallel_degree": layout.tp,
        f"{P}pipeline_parallel_degree": layout.pp,
        f"{P}context_parallel_degree": layout.cp,
        f"{P}expert_parallel_degree": layout.ep,
    }
    assert {name: degree(found, name) for name in degrees} == degrees
    dp = degree(found, f"{P}data_parallel_replicate_degree") * degree(found, f"{P}data_parallel_shard_degree")
    assert dp * layout.tp * layout.pp * layout.cp == this.cluster.devices
    assert (degree(found, f"{P}data_parallel_shard_degree") == layout.dp_shard) or short.sharding == "none"
    local, batch = degree(found, f"{T}local_batch_size"), degree(found, f"{T}global_batch_size")
    assert batch == short.workload.global_batch
    assert batch % (local * dp) == 0
    if layout.pp == 1:
        assert local == short.pipeline.micro_batch
    else:
        assert batch == local * dp, "a pipeline takes the whole step at once"
        assert degree(found, f"{P}pipeline_parallel_microbatch_size") == short.pipeline.micro_batch
        assert f"{T}disable_cuda_graphs" in found


def test_stages_hold_every_module_once_and_in_order() -> None:
    this = case(
        "deepseek-v3",
        "h100-sxm-80gb x 64",
        "torchtitan",
        layout={"pp": 4, "dp_shard": 16, "ep": 16},
        sharding="zero3",
        pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2},
    )
    stages = torchtitan_options(this.to("torchtitan"))[f"{P}module_fqns_per_model_part"]
    assert len(stages) == 8
    names = [name for stage in stages for name in stage.split(",")]
    assert names == ["tok_embeddings", *(f"layers.{i}" for i in range(61)), "norm", "lm_head"]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_recomputation_is_a_subcommand(recompute: str) -> None:
    text = case(sharding="zero3", recompute=recompute).to("torchtitan").files["torchtitan/args.sh"]
    assert array(text, "TORCHTITAN_SUBCOMMANDS") == [f"activation-checkpoint:{recompute}"]


@pytest.mark.parametrize(
    ("layout", "sharding", "gather", "policy"),
    [
        ({"dp_shard": 16}, "zero3", "per-layer", "always"),
        ({"dp_shard": 16}, "zero2", None, "never"),
        ({"dp_shard": 8, "pp": 2}, "zero3", "per-step", "never"),
        ({"dp_shard": 8, "pp": 2}, "zero3", "per-layer", "always"),
        ({"dp_replicate": 16}, "none", None, None),
    ],
)
def test_gathers(layout: dict[str, int], sharding: str, gather: str | None, policy: str | None) -> None:
    this = case(stack_name="torchtitan", layout=layout, sharding=sharding, gather=gather)
    found = torchtitan_options(this.to("torchtitan"))
    assert found.get(f"{P}fsdp_reshard_after_forward") == (policy and [policy])


def test_zero2_is_said_in_other_words_and_named() -> None:
    refused = case(stack_name="torchtitan", sharding="zero2").to("torchtitan").refused
    assert [entry.key for entry in refused] == ["sharding"]


def test_sequence_parallelism_can_be_left_out() -> None:
    layout = {"dp_shard": 8, "tp": 2, "sequence_parallel": False}
    found = torchtitan_options(case(layout=layout, sharding="zero3").to("torchtitan"))
    assert f"{P}no_enable_sequence_parallel" in found


def v_shaped(name: str, placement: tuple[int, ...]) -> Case:
    this = case(layout={"pp": 2, "dp_shard": 8}, sharding="zero3", stack_name="torchtitan")
    update = {"placement": placement, "schedule": Schedule(name=name)}
    pipeline = this.plan.pipeline.model_copy(update=update)
    return replace(this, plan=this.plan.model_copy(update={"pipeline": pipeline}))


@pytest.mark.parametrize(
    ("name", "placement", "spoken"),
    [
        ("gpipe", (0, 1), "GPipe"),
        ("looped-bfs", (0, 1, 0, 1), "LoopedBFS"),
        ("interleaved-1f1b", (0, 1, 0, 1), "Interleaved1F1B"),
        ("zb-v", (0, 1, 1, 0), "ZBVZeroBubble"),
        ("dualpipev", (0, 1, 1, 0), "DualPipeV"),
    ],
)
def test_schedules(name: str, placement: tuple[int, ...], spoken: str) -> None:
    found = torchtitan_options(v_shaped(name, placement).to("torchtitan"))
    assert found[f"{P}pipeline_parallel_schedule"] == [spoken]


@pytest.mark.parametrize(
    ("name", "placement", "field"),
    [
        ("zb-v", (0, 1, 0, 1), "pipeline.placement"),
        ("interleaved-1f1b", (0, 1, 1, 0), "pipeline.placement"),
        ("gpipe", (0, 1, 0, 1), "pipeline.virtual_stages"),
        ("zero-bubble", (0, 1), "pipeline.schedule"),
    ],
)
def test_placements_must_be_those_of_the_schedule(name: str, placement: tuple[int, ...], field: str) -> None:
    assert problem_fields(v_shaped(name, placement), "torchtitan") in (
        {field},
        {f"{field}.name"},
        {"pipeline.placement"},
    )


@pytest.mark.parametrize(
    ("field", "name", "changes"),
    [
        ("stack", "llama-2-70b", {}),
        ("stack", "gpt-3-175b", {"workload": {"seq_len": 2048}}),
        ("workload.precision", "llama-3.1-405b", {}),
        ("workload.precision", "llama-3.1-70b", {"workload": {"precision": "fp8"}}),
        ("workload.optimizer", "llama-3.1-8b", {"workload": {"optimizer": "sgd"}}),
        ("sharding", "llama-3.1-8b", {"sharding": "zero1"}),
        ("sharding", "llama-3.1-8b", {"layout": {"dp_replicate": 8, "cp": 2}, "sharding": "none"}),
        ("recompute", "llama-3.1-8b", {"recompute": ("mlp",)}),
        ("gather", "llama-3.1-8b", {"sharding": "zero3", "gather": "per-step"}),
        ("gather", "llama-3.1-8b", {"sharding": "zero3", "gather": "per-micro-batch"}),
        ("gather", "llama-3.1-8b", {"layout": {"pp": 2, "dp_shard": 8}, "gather": "per-micro-batch"}),
        ("gather", "llama-3.1-8b", {"layout": {"pp": 2, "dp_shard": 8}, "gather": "per-unit"}),
        ("layout.cp", "gpt-oss-20b", {"layout": {"dp_shard": 8, "cp": 2}}),
        ("layout.etp", "qwen3-30b-a3b", {"layout": {"dp_shard": 8, "tp": 2, "ep": 2, "etp": 2}}),
        ("layout.etp", "qwen3-30b-a3b", {"layout": {"dp_shard": 8, "tp": 2}}),
        ("layout.ep", "qwen3-30b-a3b", {"layout": {"dp_shard": 2, "dp_replicate": 8, "ep": 16}}),
        ("sharding", "qwen3-30b-a3b", {"layout": {"dp_replicate": 4, "tp": 4, "ep": 2}, "sharding": "none"}),
        (
            "workload.seq_len",
            "llama-3.1-8b",
            {"layout": {"dp_shard": 4, "cp": 4}, "workload": {"seq_len": 1028}},
        ),
        (
            "layout.rank_order",
            "llama-3.1-8b",
            {
                "layout": {
                    "pp": 2,
                    "dp_shard": 8,
                    "rank_order": ["tp", "cp", "pp", "dp_shard", "dp_replicate"],
                }
            },
        ),
        (
            "workload.global_batch",
            "llama-3.1-8b",
            {
                "layout": {"pp": 4, "dp_shard": 4},
                "workload": {"global_batch": 24},
                "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2},
            },
        ),
    ],
)
def test_what_torchtitan_cannot_say_is_refused_by_name(
    field: str, name: str, changes: dict[str, object]
) -> None:
    this = case(name, **{"sharding": "zero3", **changes})
    assert field in problem_fields(this, "torchtitan")


def test_states_that_leave_out_an_axis_are_refused() -> None:
    this = case(layout={"dp_shard": 8, "cp": 2, "context": "all-gather"}, sharding="zero3")
    axes = ("dp_shard", "cp")
    part = States(parameter=("dp_shard",), gradient=axes, optimizer=axes)
    changed = replace(this, plan=this.plan.model_copy(update={"states": part}))
    assert problem_fields(changed, "torchtitan") == {"states"}


def test_every_subcommand_is_known() -> None:
    known = option_names("torchtitan", "0.3.0")
    assert {f"activation-checkpoint:{name}" for name in ("none", "selective", "full")} <= known
