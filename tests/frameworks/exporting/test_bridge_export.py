import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bridge_cases import MODELS, dotted, exported, overrides, recipe, stage_counts
from export_cases import case, cluster, model, short_plans, stack
from hypothesis import HealthCheck, assume, given, settings

from meshwright.errors import UnsupportedError
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.frameworks.megatron_bridge.exporting.exporter import RELEASE, TARGET
from meshwright.frameworks.megatron_bridge.recipes import (
    bridge_models,
    model_of,
    recipe_names,
    recipe_settings,
)
from meshwright.frameworks.option_names import option_names
from meshwright.launchers import LAUNCHERS
from meshwright.launchers.job_nodes import job_for
from meshwright.model.zoo_names import zoo_names

PRINTS = '#!/usr/bin/env bash\nprintf "%s\\n" "${CUDA_DEVICE_MAX_CONNECTIONS:-unset}" "$@"\n'


@settings(max_examples=36, deadline=None, suppress_health_check=list(HealthCheck))
@given(this=short_plans(models=MODELS))
def test_degrees_batches_and_stages_of_the_plan_can_be_read_back(this):
    assume(not this.errors)
    try:
        export = exported(this)
    except UnsupportedError:
        assume(False)
    tree, short = overrides(export), this.short
    layout, fields = short.layout, dict(dotted(overrides(export)))
    wanted = {
        "model.tensor_model_parallel_size": layout.tp,
        "model.pipeline_model_parallel_size": layout.pp,
        "model.context_parallel_size": layout.cp,
        "model.sequence_parallel": layout.tp > 1,
        "model.virtual_pipeline_model_parallel_size": short.pipeline.virtual_stages
        if short.pipeline.virtual_stages > 1
        else None,
        "train.micro_batch_size": short.pipeline.micro_batch,
        "train.global_batch_size": short.workload.global_batch,
        "dataset.seq_length": short.workload.seq_len,
        "model.seq_length": short.workload.seq_len,
    }
    if this.model.architecture.moe:
        wanted |= {
            "model.expert_model_parallel_size": layout.ep,
            "model.expert_tensor_parallel_size": layout.etp,
        }
    assert {path: fields[path] for path in wanted} == wanted
    inner = layout.tp * layout.pp * layout.cp
    assert this.cluster.devices // inner == layout.dp_replicate * layout.dp_shard
    counts = stage_counts(tree["model"], this.model.architecture.layers)
    assert sum(counts) == this.model.architecture.layers
    assert len(counts) == layout.pp * short.pipeline.virtual_stages
    assert set(fields) <= option_names(TARGET, RELEASE)
    assert fields["model.vocab_size"] % (this.stack.vocab_multiple * layout.tp) == 0
    spare = fields["model.vocab_size"] - this.model.architecture.vocab
    assert 0 <= spare < this.stack.vocab_multiple * layout.tp


def exported_models():
    return stack("megatron-bridge").models


def field(this, path):
    return dict(dotted(overrides(exported(this))))[path]


def fields_of(this):
    return dict(dotted(overrides(exported(this))))


@pytest.mark.parametrize(
    ("sharding", "layout", "wanted"),
    [
        (
            "none",
            {"dp_replicate": 16},
            {"ddp.use_distributed_optimizer": False, "ddp.overlap_param_gather": False},
        ),
        ("zero1", {"dp_shard": 16}, {"ddp.use_distributed_optimizer": True, "ddp.use_megatron_fsdp": False}),
        ("zero1", {"dp_shard": 4, "dp_replicate": 4}, {"ddp.num_distributed_optimizer_instances": 4}),
        ("zero2", {"dp_shard": 16}, {"ddp.data_parallel_sharding_strategy": "optim_grads"}),
        (
            "zero3",
            {"dp_shard": 8, "dp_replicate": 2},
            {
                "ddp.data_parallel_sharding_strategy": "optim_grads_params",
                "ddp.num_distributed_optimizer_instances": 2,
                "model.init_model_with_meta_device": True,
                "model.gradient_accumulation_fusion": False,
                "checkpoint.ckpt_format": "fsdp_dtensor",
            },
        ),
    ],
)
def test_states(sharding, layout, wanted):
    found = fields_of(case(layout=layout, sharding=sharding))
    assert wanted.items() <= found.items()
    for name in ("use_distributed_optimizer", "overlap_param_gather"):
        assert found[f"ddp.{name}"] == found[f"optimizer.{name}"]
    assert (
        found["ddp.use_megatron_fsdp"] == found["dist.use_megatron_fsdp"] == (sharding in ("zero2", "zero3"))
    )


@pytest.mark.parametrize(
    ("recompute", "wanted"),
    [
        ("none", (None, None, None, None)),
        ("selective", ("selective", None, None, ["core_attn"])),
        ("full", ("full", "uniform", 1, None)),
        (("mlp", "layernorm"), ("selective", None, None, ["mlp", "layernorm"])),
    ],
)
def test_recomputation_replaces_the_recipes_whole(recompute, wanted):
    found = fields_of(case(recompute=recompute))
    names = ("granularity", "method", "num_layers", "modules")
    assert tuple(found[f"model.recompute_{name}"] for name in names) == wanted


def test_what_a_recipe_sets_of_a_plan_is_always_overridden():
    """Every column of the table of recipes that is of a plan stands in every file, whatever its value."""
    columns = {path for name in recipe_names() for path in recipe_settings(name)}
    beside = {"model.num_layers", "model.cpu_offloading", "model.fine_grained_activation_offloading"}
    found = overrides(
        exported(
            case("deepseek-v3", "h100-sxm-80gb x 64", layout={"dp_shard": 64, "ep": 8}, sharding="zero1")
        )
    )
    fields = dict(dotted(found))
    missing = {
        path for path in columns - beside if path not in fields and path.partition(".")[0] not in fields
    }
    assert missing == set()
    chosen = [row.config for row in exported_models()]
    assert not [name for name in chosen if set(recipe_settings(name)) & (beside - {"model.num_layers"})]


@pytest.mark.parametrize(
    ("precision", "stack_name", "wanted"),
    [
        ("bf16", "megatron-core", "bf16_mixed"),
        (
            "bf16",
            "megatron-bridge",
            {"bf16": True, "grad_reduce_in_fp32": False, "params_dtype": "torch.bfloat16"},
        ),
        ("fp16", "megatron-bridge", "fp16_mixed"),
        ("fp16", "megatron-core", {"fp16": True, "bf16": False, "grad_reduce_in_fp32": True}),
        ("fp8", "megatron-core", {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"}),
        ("fp8", "megatron-core", {"first_last_layers_bf16": False, "fp4": None, "fp8_param_gather": False}),
    ],
)
def test_precision_by_name_where_it_says_the_gradients_too(precision, stack_name, wanted):
    this = case(stack_name=stack_name, workload={"precision": precision})
    found = overrides(exported(this))["mixed_precision"]
    assert found == wanted if isinstance(wanted, str) else wanted.items() <= found.items()


def test_low_precisions_of_blackwell():
    for precision, wanted in (
        ("mxfp8", {"fp8": "e4m3", "fp8_recipe": "mxfp8"}),
        ("nvfp4", {"fp4": "e2m1", "fp8": None}),
    ):
        this = case(devices="b200 x 16", workload={"precision": precision})
        assert wanted.items() <= overrides(exported(this))["mixed_precision"].items()


@pytest.mark.parametrize(
    ("virtual", "stack_name", "wanted"),
    [
        (1, "megatron-core", (False, True)),
        (2, "megatron-core", (True, False)),
        (2, "megatron-zero-bubble", (False, True)),
    ],
)
def test_messages_overlap_in_interleaved_schedules_of_stacks_that_can(virtual, stack_name, wanted):
    kind = stack("megatron-core")
    if stack_name != "megatron-core":
        kind = replace(kind, overlap_p2p=False)
    schedule = {"schedule": "interleaved-1f1b" if virtual > 1 else "1f1b", "virtual_stages": virtual}
    this = replace(case(layout={"pp": 2, "dp_shard": 8}, sharding="zero1", pipeline=schedule), stack=kind)
    found = fields_of(this)
    assert (found["model.overlap_p2p_comm"], found["model.batch_p2p_comm"]) == wanted


def test_pipelines_before_data_parallelism_have_a_mapping_of_their_own():
    order = ["tp", "cp", "pp", "dp_shard", "dp_replicate"]
    layout = {"pp": 2, "dp_shard": 8, "rank_order": order}
    assert field(case(layout=layout, sharding="zero1"), "dist.use_tp_pp_dp_mapping") is True
    assert (
        field(case(layout={"pp": 2, "dp_shard": 8}, sharding="zero1"), "dist.use_tp_pp_dp_mapping") is False
    )


def refused(this):
    with pytest.raises(UnsupportedError) as caught:
        exported(this)
    assert all(problem.rule and problem.suggestion for problem in caught.value.problems)
    return {problem.field: problem for problem in caught.value.problems}


def test_a_model_without_a_recipe_is_refused_by_name():
    problem = refused(case("mixtral-8x7b", layout={"dp_shard": 16}, sharding="zero1"))["stack"]
    assert problem.value == "megatron-bridge@26.06"
    assert "mixtral-8x7b" in problem.rule
    assert {row.config for row in exported_models()} <= set(re.findall(r"\w+", problem.rule))


@pytest.mark.parametrize(
    ("other", "own"), [("llama-3.2-1b", "llama32_1b_pretrain_config"), ("mixtral-8x7b", None)]
)
def test_another_model_of_the_same_name_does_not_get_its_recipe(other, own):
    this = case(other, layout={"dp_shard": 16}, sharding="zero1")
    architecture = replace(this.model.architecture, name="llama-3.1-8b")
    named = replace(this, model=replace(this.model, architecture=architecture))
    if own:
        assert recipe(exported(named)) == own
    else:
        assert set(refused(named)) == {"stack"}


def test_all_that_can_not_be_said_comes_at_once():
    this = case(
        "mixtral-8x7b",
        layout={"dp_shard": 16, "rank_order": ["cp", "tp", "dp_shard", "dp_replicate", "pp"]},
        sharding="zero3",
        gather="per-step",
    )
    wrong = this.plan.model_copy(
        update={
            "pipeline": this.plan.pipeline.model_copy(
                update={"schedule": this.plan.pipeline.schedule.model_copy(update={"name": "gpipe"})}
            )
        }
    )
    assert {"stack", "gather", "pipeline.schedule"} <= set(refused(replace(this, plan=wrong)))


def test_sharded_states_do_not_run_with_pipelines_before_data_parallelism():
    layout = {"pp": 2, "dp_shard": 8, "rank_order": ["tp", "cp", "pp", "dp_shard", "dp_replicate"]}
    this = case(stack_name="megatron-bridge", layout=layout, sharding="zero3", gather="per-layer")
    assert "layout.rank_order" in refused(this)


def test_gathers_of_experts_are_held_against_the_stack_where_nothing_else_is_sharded():
    layout = {"pp": 2, "tp": 4, "ep": 2, "etp": 1}
    rest = {"layout": layout, "sharding": "zero3", "stack_name": "megatron-bridge"}
    assert refused(case("qwen3-30b-a3b", "h100-sxm-80gb x 8", gather="per-step", **rest)).keys() == {"gather"}
    assert exported(case("qwen3-30b-a3b", "h100-sxm-80gb x 8", gather="per-layer", **rest)).files


def test_gemma_is_not_cut_over_context():
    layout = {"cp": 2, "dp_shard": 8}
    assert set(refused(case("gemma-2-9b", layout=layout, sharding="zero1"))) == {"layout.cp"}
    assert field(case("llama-3.1-8b", layout=layout, sharding="zero1"), "model.cp_comm_type") == "p2p"


def test_a_ring_of_ranks_that_exchange_heads_has_two_sizes():
    layout = {"cp": 4, "dp_shard": 4, "context": {"form": "ring", "ulysses": 2}}
    this = case("llama-3.1-8b", stack_name="megatron-bridge", layout=layout, sharding="zero1")
    assert field(this, "model.cp_comm_type") == "a2a+p2p"
    assert field(this, "model.hierarchical_context_parallel_sizes") == [2, 2]


def test_what_bridge_means_in_its_own_way_is_named():
    this = case(
        "qwen3-30b-a3b", stack_name="megatron-bridge", layout={"dp_shard": 16, "ep": 8}, sharding="zero1"
    )
    named = {refusal.key: refusal for refusal in exported(this).refused}
    assert set(named) == {"stack.deduplicates_exchange"}
    assert "alltoall" in named["stack.deduplicates_exchange"].why
    assert field(this, "model.moe_token_dispatcher_type") == "alltoall"
    other = case(workload={"task": "sft"}, recompute="selective")
    assert {refusal.key for refusal in exported(other).refused} == {"stack", "recompute", "workload.task"}


BESIDE = "stack.overlap_expert_exchange"


def with_exchange_beside_compute(**rest):
    layout = {"dp_shard": 8, "ep": 8, "pp": 2}
    this = case("qwen3-30b-a3b", stack_name="megatron-bridge", layout=layout, sharding="zero1", **rest)
    stack = replace(this.stack, overlap_expert_exchange=True, deduplicates_exchange=False)
    return replace(this, stack=stack)


def test_exchanges_beside_compute_are_written_where_bridge_runs_them_so():
    pipeline = {"schedule": "interleaved-1f1b", "virtual_stages": 2, "micro_batch": 1}
    this = with_exchange_beside_compute(pipeline=pipeline, recompute=("moe_act",))
    assert field(this, "model.overlap_moe_expert_parallel_comm") is True
    assert not exported(this).refused
    for refused, word in (
        (with_exchange_beside_compute(), "virtual stages"),
        (with_exchange_beside_compute(pipeline=pipeline, recompute=("moe",)), "recomputed"),
    ):
        assert field(refused, "model.overlap_moe_expert_parallel_comm") is False
        assert [word in refusal.why for refusal in exported(refused).refused if refusal.key == BESIDE] == [
            True
        ]


def run(folder, script, *arguments, **variables):
    """Lines that the program at the end of the chain printed."""
    programs = {"torchrun": PRINTS, "scontrol": "#!/bin/sh\necho node0\necho node1\n"}
    programs["srun"] = '#!/usr/bin/env bash\nshift\nexec "$@"\n'
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    known = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **variables}
    command = ["bash", str(folder / "bridge" / script), *arguments]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()


def written(this, folder):
    export = exported(this)
    for path, text in export.files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return export


def test_launch_hands_the_recipe_and_the_words_to_torchrun(tmp_path):
    export = written(case(layout={"dp_shard": 8, "tp": 2}, sharding="zero1"), tmp_path)
    found = run(tmp_path, "launch.sh", "model.add_qkv_bias=true")
    assert found[:5] == ["1", "--nnodes", "2", "--nproc-per-node", "8"]
    at = found.index(str(tmp_path / "bridge" / "run.py"))
    assert found[at + 1] == recipe(export) == "llama31_8b_pretrain_config"
    assert {"train.train_iters=100", "checkpoint.save=null", "checkpoint.load=null"} <= set(found)
    assert found[-1] == "model.add_qkv_bias=true"


def test_site_variables_become_words(tmp_path):
    written(case(), tmp_path)
    site = {
        "DATA_PATH": "/data/my text",
        "TOKENIZER_MODEL": "t",
        "TRAIN_ITERS": "7",
        "CHECKPOINT_DIR": "/c d",
    }
    found = run(tmp_path, "launch.sh", **site)
    assert {"dataset.data_path='/data/my text'", "tokenizer.tokenizer_model='t'"} <= set(found)
    assert {"train.train_iters=7", "checkpoint.save='/c d'", "checkpoint.load='/c d'"} <= set(found)
    assert "checkpoint.save=null" not in found
    names = {word.partition("=")[0] for word in found if "=" in word and not word.startswith("-")}
    assert names <= option_names(TARGET, RELEASE)


def test_the_job_runs_the_launcher_at_the_first_node(tmp_path):
    written(case(), tmp_path)
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path / "bridge"), "SLURM_JOB_NODELIST": "n", "SLURM_JOB_ID": "42"}
    found = run(tmp_path, "job.sbatch", SLURM_JOB_NUM_NODES="2", **slurm)
    assert "node0:29500" in found
    assert found[found.index("--rdzv-id") + 1] == "42"


@pytest.mark.parametrize(
    ("sharding", "layout", "value"),
    [("zero3", {"dp_shard": 8, "tp": 2}, "unset"), ("zero1", {"dp_shard": 16}, "32")],
)
def test_connections_are_megatrons(sharding, layout, value, tmp_path):
    written(case(layout=layout, sharding=sharding), tmp_path)
    assert run(tmp_path, "launch.sh", CUDA_DEVICE_MAX_CONNECTIONS="32")[0] == value


STAND_IN = {
    "recipes/__init__.py": """
from types import SimpleNamespace

def some_config():
    return SimpleNamespace(mixed_precision="bf16_mixed")
""",
    "training/gpt_step.py": """
forward_step = "the step"
""",
    "training/mixed_precision.py": """
def get_mixed_precision_config(name):
    return {"name": name}
""",
    "training/pretrain.py": """
def pretrain(config, step):
    print(config.mixed_precision, config.path, config.words, step)
""",
    "training/utils/omegaconf_utils.py": """
def process_config_with_overrides(config, path, words):
    config.path, config.words = path, words
""",
}
"""Modules with the names that run.py imports, each of which notes what it was given."""


def test_run_merges_the_file_and_then_the_words(tmp_path):
    written(case(), tmp_path)
    for path, text in STAND_IN.items():
        place = tmp_path / "modules" / "megatron" / "bridge" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    command = [sys.executable, str(tmp_path / "bridge" / "run.py"), "some_config", "a.b=1", "c.d=2"]
    known = {"PYTHONPATH": str(tmp_path / "modules"), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
    path = tmp_path / "bridge" / "overrides.yaml"
    assert done.stdout == f"{{'name': 'bf16_mixed'}} {path} ['a.b=1', 'c.d=2'] the step\n"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_carries_run_and_overrides(launcher):
    this = case(sharding="zero1")
    export = launch_files(exported(this), job_for(this.cluster, this.model.name), launcher)
    jobs = [text for path, text in export.files.items() if Path(path).name.startswith("job.")]
    assert set(map(Path, ("bridge/overrides.yaml", "bridge/run.py", "bridge/launch.sh"))) <= set(
        map(Path, export.files)
    )
    if launcher in ("trainjob", "jobset", "rayjob"):
        assert "  overrides.yaml: |" in jobs[-1]
        assert "  run.py: |" in jobs[-1]


def test_the_tables_name_what_is_there():
    known = set(recipe_names())
    rows = bridge_models()
    assert {row.model for row in rows if row.model} <= set(zoo_names())
    assert {row.config for row in exported_models()} <= known
    for row in exported_models():
        of = model_of(row.config)
        assert of.model == row.model
        assert row.config.startswith(f"{of.stem}_pretrain")
    assert len(known) == len(recipe_names()) > 300
    assert {path for name in known for path in recipe_settings(name)} <= option_names(TARGET, RELEASE)


def test_recipes_have_the_layers_of_the_model_that_they_are_for():
    for name in recipe_names():
        row = model_of(name)
        assert row is not None, name
        assert row.model, name
        assert int(recipe_settings(name)["model.num_layers"]) == model(row.model).architecture.layers, name


def test_the_longest_start_of_a_name_is_the_model():
    assert model_of("deepseek_v2_lite_pretrain_config").model == ""
    assert model_of("deepseek_v2_pretrain_config").model == "deepseek-v2"
    assert model_of("llama31_8b_sft_config").model == "llama-3.1-8b"
    assert model_of("nemotronh_8b_pretrain_config") is None


def test_files_are_plain_text_for_every_reader():
    export = exported(
        case("gpt-3-175b", "h100-sxm-80gb x 64", workload={"seq_len": 2048}, layout={"pp": 8, "tp": 8})
    )
    assert all(text.isascii() and text.endswith("\n") for text in export.files.values())
    assert shlex.split(export.files["bridge/launch.sh"], comments=True)
    assert cluster("h100-sxm-80gb x 64").devices == 64
