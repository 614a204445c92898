"""Runs the scripts with programs on PATH that only print what they were given."""

import shlex
import subprocess
from pathlib import Path

import pytest
from export_cases import case
from script_runs import run

from meshwright.launchers.job_nodes import job_for


def test_launch_hands_all_arguments_to_torchrun(tmp_path: Path) -> None:
    this = case(layout={"dp_shard": 8, "tp": 2})
    words = run(this, "megatron", tmp_path, "launch.sh")
    assert words[0] == "1"
    assert words[1:5] == ["--nnodes", "2", "--nproc-per-node", "8"]
    assert "localhost:29500" in words
    assert words[words.index("--tensor-model-parallel-size") + 1] == "2"
    assert "--mock-data" in words
    assert words[-2:] == ["--extra", "a b"]


def test_site_variables_replace_the_defaults(tmp_path: Path) -> None:
    site = {
        "DATA_PATH": "/data/my text",
        "TOKENIZER_MODEL": "t",
        "TRAIN_ITERS": "7",
        "CHECKPOINT_DIR": "/c d",
    }
    words = run(case(), "megatron", tmp_path, "launch.sh", **site)
    assert "--mock-data" not in words
    assert words[words.index("--data-path") + 1] == "/data/my text"
    assert words[words.index("--train-iters") + 1] == "7"
    assert words[words.index("--save") + 1] == "/c d"


def test_torchtitan_ends_in_its_subcommand(tmp_path: Path) -> None:
    words = run(
        case(sharding="zero3", recompute="full"), "torchtitan", tmp_path, "launch.sh", TRAIN_STEPS="3"
    )
    assert words[words.index("-m") + 1] == "torchtitan.train"
    assert words[words.index("--training.steps") + 1] == "3"
    assert words[-3:] == ["--extra", "a b", "activation-checkpoint:full"]


def test_the_job_runs_the_launcher_at_the_first_node(tmp_path: Path) -> None:
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path / "megatron"), "SLURM_JOB_NODELIST": "node[0-1]"}
    words = run(
        case(), "megatron", tmp_path, "job.sbatch", SLURM_JOB_ID="42", SLURM_JOB_NUM_NODES="2", **slurm
    )
    assert "node0:29500" in words
    assert words[words.index("--rdzv-id") + 1] == "42"


def test_the_job_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(case(), "megatron", tmp_path, "job.sbatch", SLURM_SUBMIT_DIR="/nowhere")
    assert caught.value.returncode == 2
    assert "launch.sh is not in /nowhere" in caught.value.stderr


@pytest.mark.parametrize(
    ("devices", "layout", "sharding", "value"),
    [
        ("h100-sxm-80gb x 16", {"dp_shard": 8, "tp": 2}, "zero1", "1"),
        ("h100-sxm-80gb x 16", {"dp_shard": 8, "cp": 2}, "zero1", "1"),
        ("h100-sxm-80gb x 16", {"dp_shard": 16}, "zero1", "32"),
        ("b200 x 16", {"dp_shard": 8, "tp": 2}, "zero1", "32"),
        ("h100-sxm-80gb x 16", {"dp_shard": 8, "tp": 2}, "zero3", "unset"),
    ],
)
def test_connections_are_one_for_tp_or_cp_up_to_hopper_and_never_for_fsdp(
    devices: str, layout: dict[str, int], sharding: str, value: str, tmp_path: Path
) -> None:
    this = case(devices=devices, layout=layout, sharding=sharding)
    words = run(this, "megatron", tmp_path, "launch.sh", CUDA_DEVICE_MAX_CONNECTIONS="32")
    assert words[0] == value


def test_nodes_and_processes_multiply_to_the_devices() -> None:
    for count in (4, 8, 64):
        this = case(devices=f"h100-sxm-80gb x {count}", layout={"dp_shard": count})
        job = job_for(this.cluster, this.model.name)
        assert job.nodes * job.devices_per_node == count


def test_a_job_name_is_one_plain_word() -> None:
    job = job_for(case().cluster, "my model\n$(touch x)")
    assert shlex.split(job.name) == [job.name]
    assert job.name.isprintable()
