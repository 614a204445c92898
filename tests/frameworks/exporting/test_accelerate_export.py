import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from export_cases import Case, array, case, options
from hugging_face_cases import REFUSED_BY_BOTH, refused_fields, run_script, written

from meshwright.frameworks.accelerate.exporting.exporter import export_accelerate
from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.nested_keys import unknown_keys
from meshwright.frameworks.option_names import option_names
from meshwright.plans.files.yaml_text import read_mapping
from meshwright.plans.forms.long import States

P = "parallelism_config_"


def to_accelerate(this: Case) -> Export:
    return export_accelerate(this.plan, this.model, this.cluster, this.stack)


def plan(name: str = "llama-3.1-8b", **changes: object) -> Case:
    return case(name, **{"sharding": "zero3", **changes})


def config(this: Case) -> dict[str, object]:
    return read_mapping(to_accelerate(this).files["accelerate/config.yaml"], "config")


def trainer(this: Case) -> dict[str, list[str]]:
    return options(array(to_accelerate(this).files["accelerate/launch.sh"], "TRAINER_ARGS"))


def test_the_sizes_of_the_mesh_multiply_to_the_processes() -> None:
    seen = 0
    for this, export in written(export_accelerate, 80, seed=1):
        found = read_mapping(export.files["accelerate/config.yaml"], "config")
        assert found["num_processes"] == this.cluster.devices
        mesh = found.get("parallelism_config")
        if mesh is None:
            assert found["distributed_type"] in ("MULTI_GPU", "NO")
            continue
        product = 1
        for size in mesh.values():
            product *= size
        assert product == this.cluster.devices
        seen += 1
    assert seen > 20


def test_every_key_is_one_of_the_release() -> None:
    names = option_names("accelerate", "1.15.0")
    for _, export in written(export_accelerate, 60, seed=2):
        found = read_mapping(export.files["accelerate/config.yaml"], "config")
        assert list(unknown_keys(found, names)) == []


@pytest.mark.parametrize(
    ("sharding", "gather", "reshards"),
    [("zero3", "per-layer", True), ("zero2", None, False)],
)
def test_gathers(sharding: str, gather: str | None, reshards: bool) -> None:
    found = config(plan(sharding=sharding, gather=gather))
    assert (found["distributed_type"], found["fsdp_config"]["fsdp_version"]) == ("FSDP", 2)
    assert found["fsdp_config"]["fsdp_reshard_after_forward"] is reshards


def test_zero2_is_said_in_other_words_and_named() -> None:
    assert "sharding" in {entry.key for entry in to_accelerate(plan(sharding="zero2")).refused}


def test_unsharded_replicas_have_no_mesh() -> None:
    found = config(plan(sharding="none"))
    assert found["distributed_type"] == "MULTI_GPU"
    assert "parallelism_config" not in found
    assert "fsdp_config" not in found


def test_one_device_is_no_and_its_reader_does_not_take_it_for_false() -> None:
    this = case(devices="h100-sxm-80gb x 1", layout={"tp": 1}, sharding="none")
    assert config(this)["distributed_type"] == "NO"
    assert 'distributed_type: "NO"' in to_accelerate(this).files["accelerate/config.yaml"]


def test_a_lone_tensor_parallel_group_needs_no_sharding() -> None:
    layout = {"tp": 8, "sequence_parallel": False}
    found = config(case(devices="h100-sxm-80gb x 8", layout=layout, sharding="none"))
    assert (found["distributed_type"], found["parallelism_config"][f"{P}tp_size"]) == ("MULTI_GPU", 8)


def test_replicas_shards_context_and_tensor_parallelism_are_four_sizes() -> None:
    layout = {"dp_replicate": 2, "dp_shard": 2, "cp": 2, "tp": 2, "sequence_parallel": False}
    mesh = config(plan(layout=layout))["parallelism_config"]
    assert mesh == {f"{P}{axis}_size": 2 for axis in ("dp_replicate", "dp_shard", "cp", "tp")}


@pytest.mark.parametrize(("recompute", "on"), [("full", True), ("none", False)])
def test_recomputation_is_fsdps_own_and_never_said_twice(recompute: str, on: bool) -> None:
    this = plan(recompute=recompute)
    assert config(this)["fsdp_config"]["fsdp_activation_checkpointing"] is on
    assert "--gradient_checkpointing" not in trainer(this)


def test_without_fsdp_recomputation_is_the_training_scripts() -> None:
    assert trainer(plan(sharding="none", recompute="full"))["--gradient_checkpointing"] == ["true"]


def test_sharded_gradients_are_reduced_after_every_micro_batch() -> None:
    several, one = plan(), plan(workload={"global_batch": 16})
    assert "sync_each_batch" in trainer(several)["--accelerator_config"][0]
    assert "--accelerator_config" not in trainer(one)
    assert "--accelerator_config" not in trainer(plan(sharding="none"))


def test_fp8_is_torchaos_which_refuses_loading_by_one_rank() -> None:
    found = config(plan(workload={"precision": "fp8"}))
    assert (found["mixed_precision"], found["fp8_config"]) == ("fp8", {"backend": "AO"})
    assert found["fsdp_config"]["fsdp_cpu_ram_efficient_loading"] is False


@pytest.mark.parametrize(
    ("field", "name", "changes"),
    [
        *REFUSED_BY_BOTH,
        ("sharding", "llama-3.1-8b", {"sharding": "zero1"}),
        ("sharding", "llama-3.1-8b", {"sharding": "none", "layout": {"dp_replicate": 8, "cp": 2}}),
        ("sharding", "llama-3.1-8b", {"sharding": "none", "layout": {"dp_replicate": 8, "tp": 2}}),
        ("layout.dp_replicate", "llama-3.1-8b", {"layout": {"dp_replicate": 8, "cp": 2}}),
        ("layout.tp", "gpt-3-175b", {"layout": {"tp": 2, "dp_shard": 8}, "workload": {"seq_len": 2048}}),
        ("layout.ep", "mixtral-8x7b", {"layout": {"dp_shard": 16, "ep": 2}}),
        ("layout.etp", "mixtral-8x7b", {"layout": {"dp_shard": 8, "tp": 2}}),
        (
            "workload.seq_len",
            "llama-3.1-8b",
            {"layout": {"dp_shard": 8, "cp": 2}, "workload": {"seq_len": 4098}},
        ),
        ("gather", "llama-3.1-8b", {"gather": "per-micro-batch"}),
        ("gather", "llama-3.1-8b", {"gather": "per-step"}),
        ("gather", "llama-3.1-8b", {"gather": "per-unit"}),
        (
            "workload.precision",
            "llama-3.1-8b",
            {"workload": {"precision": "fp8"}, "layout": {"tp": 2, "dp_shard": 8}},
        ),
    ],
)
def test_what_accelerate_cannot_say_is_refused_by_name(
    field: str, name: str, changes: dict[str, object]
) -> None:
    assert field in refused_fields(export_accelerate, plan(name, **changes))


def test_states_that_leave_out_an_axis_are_refused() -> None:
    this = plan(layout={"dp_shard": 8, "cp": 2})
    axes = ("dp_shard", "cp")
    part = States(parameter=("dp_shard",), gradient=axes, optimizer=axes)
    changed = replace(this, plan=this.plan.model_copy(update={"states": part}))
    assert refused_fields(export_accelerate, changed) == {"states"}


def test_launch_hands_file_and_nodes_to_accelerate(tmp_path: Path) -> None:
    site = {"TRAIN_SCRIPT": "t.py", "MASTER_ADDR": "node0"}
    files, extra = to_accelerate(plan()).files, ("--extra", "a b")
    done = run_script(files, "accelerate/launch.sh", "accelerate", tmp_path, extra, **site)
    words = done.stdout.splitlines()
    assert words[0] == "launch"
    assert words[words.index("--config_file") + 1] == str(tmp_path / "accelerate/config.yaml")
    assert words[words.index("--num_machines") + 1] == "2"
    assert words[words.index("--main_process_ip") + 1] == "node0"
    assert words[words.index("--rdzv_backend") + 1] == "c10d"
    assert words.index("t.py") < words.index("--per_device_train_batch_size")
    assert words[-2:] == ["--extra", "a b"]


@pytest.mark.parametrize("script", ["launch.sh", "job.sbatch"])
def test_the_scripts_are_shell(script: str, tmp_path: Path) -> None:
    (tmp_path / script).write_text(to_accelerate(plan()).files[f"accelerate/{script}"])
    done = subprocess.run(["bash", "-n", tmp_path / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
