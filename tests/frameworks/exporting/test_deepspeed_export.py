import json
from dataclasses import replace
from pathlib import Path

import pytest
from export_cases import Case, array, case, options
from hugging_face_cases import REFUSED_BY_BOTH, refused_fields, run_script, written

from meshwright.frameworks.deepspeed.exporting.exporter import export_deepspeed
from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.nested_keys import unknown_keys
from meshwright.frameworks.option_names import option_names
from meshwright.plans.forms.long import States


def to_deepspeed(this: Case) -> Export:
    return export_deepspeed(this.plan, this.model, this.cluster, this.stack)


def plan(name: str = "llama-3.1-8b", **changes: object) -> Case:
    return case(name, stack_name="deepspeed", **{"sharding": "zero3", **changes})


def config(this: Case) -> dict[str, object]:
    return json.loads(to_deepspeed(this).files["deepspeed/ds_config.json"])


def test_the_three_numbers_of_the_batch_multiply_to_the_global_batch() -> None:
    for this, export in written(export_deepspeed, 60, seed=1):
        found = json.loads(export.files["deepspeed/ds_config.json"])
        layout = this.short.layout
        dp = layout.dp_replicate * layout.dp_shard
        each = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"]
        assert each * dp == this.short.workload.global_batch
        assert found.get("train_batch_size", each * dp) == each * dp
        assert ("train_batch_size" in found) == (layout.tp == 1), "it would count every rank of AutoTP"


def test_every_key_is_one_of_the_release() -> None:
    names = option_names("deepspeed", "0.19.8")
    for _, export in written(export_deepspeed, 60, seed=2):
        assert list(unknown_keys(json.loads(export.files["deepspeed/ds_config.json"]), names)) == []


@pytest.mark.parametrize(("sharding", "stage"), [("none", 0), ("zero1", 1), ("zero2", 2), ("zero3", 3)])
def test_sharding_is_the_stage(sharding: str, stage: int) -> None:
    assert config(plan(sharding=sharding))["zero_optimization"]["stage"] == stage


def test_overlap_is_what_the_stack_does() -> None:
    this = plan()
    alone = replace(this, stack=replace(this.stack, overlap_gradient_reduction=False))
    assert config(this)["zero_optimization"]["overlap_comm"] is True
    assert config(alone)["zero_optimization"]["overlap_comm"] is False


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_one_precision_is_on_in_the_file_and_in_the_arguments(precision: str) -> None:
    this = plan(workload={"precision": precision})
    found, words = config(this), trainer(this)
    assert {name for name in ("bf16", "fp16") if found[name]["enabled"]} == {precision}
    assert {name for name in ("--bf16", "--fp16") if name in words} == {f"--{precision}"}


def trainer(this: Case) -> dict[str, list[str]]:
    return options(array(to_deepspeed(this).files["deepspeed/launch.sh"], "TRAINER_ARGS"))


def test_recomputation_is_the_training_scripts() -> None:
    assert trainer(plan(recompute="full"))["--gradient_checkpointing"] == ["true"]
    assert "--gradient_checkpointing" not in trainer(plan(recompute="none"))


def test_another_optimizer_is_allowed_by_the_file_and_asked_for_in_the_arguments() -> None:
    this = plan(workload={"optimizer": "sgd"})
    assert config(this)["zero_allow_untested_optimizer"] is True
    assert trainer(this)["--optim"] == ["sgd"]


def test_tensor_parallelism_is_autotp_and_names_what_stays_whole() -> None:
    this = plan(layout={"dp_shard": 8, "tp": 2, "sequence_parallel": False})
    assert config(this)["tensor_parallel"] == {"autotp_size": 2}
    assert [entry.key for entry in to_deepspeed(this).refused] == ["layout.tp"]


def test_experts_are_autoep_with_the_familys_preset() -> None:
    found = config(plan("qwen3-30b-a3b", layout={"dp_shard": 16, "ep": 8}))
    assert found["expert_parallel"] == {"enabled": True, "autoep_size": 8, "preset_model": "qwen3_moe"}
    assert "expert_parallel" not in config(plan("qwen3-30b-a3b", layout={"dp_shard": 16}))


@pytest.mark.parametrize(
    ("field", "name", "changes"),
    [
        *REFUSED_BY_BOTH,
        ("layout.cp", "llama-3.1-8b", {"layout": {"cp": 2, "dp_shard": 8}}),
        ("layout.dp_replicate", "llama-3.1-8b", {"layout": {"dp_replicate": 2, "dp_shard": 8}}),
        (
            "layout.tp",
            "gpt-3-175b",
            {"layout": {"tp": 2, "dp_shard": 8, "sequence_parallel": False}, "workload": {"seq_len": 2048}},
        ),
        ("layout.tp", "qwen3-30b-a3b", {"layout": {"tp": 2, "dp_shard": 8, "ep": 2}}),
        ("layout.ep", "mixtral-8x7b", {"layout": {"tp": 2, "dp_shard": 8}}),
        ("layout.ep", "gpt-oss-20b", {"layout": {"dp_shard": 16, "ep": 4}}),
        ("layout.etp", "mixtral-8x7b", {"layout": {"tp": 2, "dp_shard": 8, "ep": 2, "etp": 2}}),
        ("gather", "llama-3.1-8b", {"gather": "per-micro-batch"}),
        ("gather", "llama-3.1-8b", {"gather": "per-unit"}),
        ("workload.precision", "llama-3.1-8b", {"workload": {"precision": "fp8"}}),
    ],
)
def test_what_deepspeed_cannot_say_is_refused_by_name(
    field: str, name: str, changes: dict[str, object]
) -> None:
    assert field in refused_fields(export_deepspeed, plan(name, **changes))


def test_states_that_leave_out_an_axis_are_refused() -> None:
    this = plan(layout={"dp_shard": 8, "dp_replicate": 2})
    part = States(parameter=("dp_replicate",), gradient=("dp_shard", "dp_replicate"), optimizer=())
    changed = replace(this, plan=this.plan.model_copy(update={"states": part}))
    assert refused_fields(export_deepspeed, changed) == {"states"}


def test_launch_starts_the_script_with_the_file_and_the_plans_numbers(tmp_path: Path) -> None:
    files = to_deepspeed(plan(workload={"seq_len": 4096})).files
    extra = ("--dataset_name", "a b")
    done = run_script(files, "deepspeed/launch.sh", "torchrun", tmp_path, extra, TRAIN_SCRIPT="my train.py")
    words = done.stdout.splitlines()
    assert words[:4] == ["--nnodes", "2", "--nproc-per-node", "8"]
    assert "my train.py" in words
    assert words[words.index("--deepspeed") + 1] == str(tmp_path / "deepspeed/ds_config.json")
    assert words[words.index("--block_size") + 1] == "4096"
    assert words[-2:] == ["--dataset_name", "a b"]


def test_a_launch_without_a_script_says_what_it_wants(tmp_path: Path) -> None:
    done = run_script(to_deepspeed(plan()).files, "deepspeed/launch.sh", "torchrun", tmp_path)
    assert done.returncode != 0
    assert "TrainingArguments" in done.stderr


def test_the_job_hands_its_words_to_the_launcher(tmp_path: Path) -> None:
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path / "deepspeed"), "SLURM_JOB_NODELIST": "node[0-1]"}
    numbers = {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2", "TRAIN_SCRIPT": "t.py"}
    files, extra = to_deepspeed(plan()).files, ("--config_name", "c d")
    done = run_script(files, "deepspeed/job.sbatch", "torchrun", tmp_path, extra, **slurm, **numbers)
    assert "node0:29500" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-2:] == ["--config_name", "c d"]


def test_fine_tuning_takes_another_name_for_the_length_and_says_who_decides() -> None:
    export = to_deepspeed(plan(workload={"task": "sft"}))
    assert "--max_length" in export.files["deepspeed/launch.sh"]
    assert [entry.key for entry in export.refused] == ["workload.task"]


def test_a_plan_of_another_stack_is_named() -> None:
    this = case(stack_name="torchtitan", sharding="zero3")
    assert [entry.key for entry in to_deepspeed(this).refused] == ["stack"]
