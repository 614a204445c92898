"""The job of every target: its files, its readers, its refusals, and the program that starts it."""

import json
import shlex
from pathlib import Path

import pytest
from command_runs import refused, run
from launch_cases import OURS, bash, job, ours, program
from launcher_cases import of_kind

from meshwright.errors import InputError
from meshwright.launchers.job_nodes import IMAGE
from meshwright.launchers.kubernetes import MOUNT
from meshwright.launchers.parsers import check_files
from meshwright.launchers.parsers.check_files import documents
from meshwright.plans.files.plan_file import parse_plan
from meshwright.verbs.launch import launch_plan
from meshwright.verbs.launch.launch_targets import SYSTEMS
from meshwright.verbs.load_plan import load

JOB_FILES = {
    "slurm": "job.sbatch",
    "kubernetes": "job.jobset.yaml",
    "ray": "job.rayjob.yaml",
    "skypilot": "job.sky.yaml",
    "torchrun": "launch.sh",
}
READ_BY = {
    "slurm": "sbatch",
    "kubernetes": "jobset v0.12.0",
    "ray": "kuberay v1.7.0",
    "skypilot": "SkyPilot 0.14.1",
    "torchrun": "torchrun",
}
CONTAINERS = [name for name, system in SYSTEMS.items() if system.containers]
TRAINING = ("--", "--steps", "7", "--lr", "1e-3", "--mask-document-starts")


@pytest.mark.parametrize("on", SYSTEMS)
def test_every_file_of_a_job_is_accepted_by_its_reader(on, tmp_path):
    data = job(ours(tmp_path), on, "--storage", "/shared")
    assert {row["path"] for row in data["accepted"]} == set(data["files"])
    assert any(READ_BY[on] in row["by"] for row in data["accepted"] if row["path"] == JOB_FILES[on])
    assert data["submitted"] is None
    parsed = parse_plan(data["files"]["plan.yaml"])
    assert (parsed.model, parsed.stack) == (OURS["model"], "meshwright")
    assert data["command"].startswith("cd launch && ")


@pytest.mark.parametrize("on", SYSTEMS)
def test_options_behind_the_dashes_reach_the_run_and_others_are_refused_by_its_own_parser(on, tmp_path):
    plan = ours(tmp_path)
    script = job(plan, on, "--storage", "/shared", *TRAINING)["files"]["launch.sh"]
    assert "--steps 7 \\\n  --mask-document-starts \\\n  --lr 0.001 \\\n" in script
    assert 'meshwright run "${HERE}/plan.yaml"' in script
    assert "STEPS" not in script
    data = job(plan, on, "--", "--setps", "7", code=2)
    assert [problem["field"] for problem in data["problems"]] == ["--setps"]
    assert "--steps" in data["problems"][0]["suggestion"]


@pytest.mark.parametrize("on", CONTAINERS)
def test_storage_is_mounted_where_the_run_writes(on, tmp_path):
    files = job(ours(tmp_path), on, "--storage", "/shared/runs")["files"]
    assert "RUN=/shared/runs/llama-3.2-1b\n" in files["launch.sh"]
    text = files[JOB_FILES[on]]
    if on == "skypilot":
        assert documents(text)[0]["volumes"] == {"/shared/runs": "llama-3-2-1b-storage"}
        return
    claim = of_kind(text, "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert of_kind(text, "ConfigMap")["data"]["plan.yaml"] == files["plan.yaml"]
    found = [volume for pod in _pods(on, text) for volume in pod["volumes"] if volume["name"] == "storage"]
    assert {v["persistentVolumeClaim"]["claimName"] for v in found} == {claim["metadata"]["name"]}
    for pod in _pods(on, text):
        mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert (mounts["storage"], mounts["scripts"]) == ("/shared/runs", MOUNT)


def _pods(on, text):
    if on == "kubernetes":
        (jobs,) = of_kind(text, "JobSet")["spec"]["replicatedJobs"]
        return [jobs["template"]["spec"]["template"]["spec"]]
    spec = of_kind(text, "RayJob")["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


@pytest.mark.parametrize(("nodes", "mode"), [(8, "MOUNT_CACHED"), (16, "MOUNT")])
def test_a_bucket_is_mounted_by_skypilot(nodes, mode, tmp_path):
    plan = ours(tmp_path, cluster=f"h100-sxm-80gb x {nodes}", layout=f"{{dp_shard: {nodes}}}")
    files = job(plan, "skypilot", "--storage", "s3://bucket/runs/")["files"]
    (task,) = documents(files["job.sky.yaml"])
    assert task["file_mounts"] == {"/storage": {"source": "s3://bucket/runs", "mode": mode}}
    assert "RUN=/storage/llama-3.2-1b\n" in files["launch.sh"]


@pytest.mark.parametrize("on", [name for name, system in SYSTEMS.items() if not system.buckets])
def test_a_bucket_is_refused_by_name_elsewhere(on, tmp_path):
    (problem,) = job(ours(tmp_path), on, "--storage", "s3://bucket/runs", code=2)["problems"]
    assert problem["field"] == "storage"
    assert on in problem["rule"]
    assert "skypilot" in problem["suggestion"]


@pytest.mark.parametrize("on", SYSTEMS)
def test_without_storage_the_script_says_why_it_is_needed(on, tmp_path):
    data = job(ours(tmp_path), on)
    script = data["files"]["launch.sh"]
    assert "must lie on storage that all nodes see" in script
    assert "--storage" in script
    assert any("--storage" in remark for remark in data["remarks"])
    if on in CONTAINERS:
        done = bash(_written(tmp_path, data) / "launch.sh", tmp_path / "bin", STEPS="3")
        assert done.returncode != 0
        assert "no --storage was given" in done.stderr


def _written(folder, data):
    for name, text in data["files"].items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_storage_that_is_not_mounted_ends_a_node_with_a_message(tmp_path):
    data = job(ours(tmp_path), "slurm", "--storage", "/not/there", *TRAINING)
    done = bash(_written(tmp_path, data) / "launch.sh", tmp_path / "bin")
    assert (done.returncode, done.stderr) == (
        2,
        "/not/there is no folder on this node: mount the shared storage there\n",
    )


@pytest.mark.parametrize("on", ["slurm", "torchrun"])
def test_a_node_starts_torchrun_with_restarts_and_the_run(on, tmp_path):
    storage = tmp_path / "shared"
    storage.mkdir()
    data = job(ours(tmp_path), on, "--storage", storage, *TRAINING)
    program(tmp_path / "bin", "torchrun", 'printf "%s\\n" "$@"\n')
    done = bash(_written(tmp_path, data) / "launch.sh", tmp_path / "bin", MASTER_ADDR="node0")
    words = done.stdout.splitlines()
    assert words[:4] == ["--nnodes", "2", "--nproc-per-node", "8"]
    assert words[words.index("--max-restarts") + 1] == "3"
    assert words[words.index("--no-python") + 1 :][:2] == ["meshwright", "run"]
    assert words[words.index("--out") + 1] == str(storage / "llama-3.2-1b")
    assert words[words.index("run") + 1] == str(tmp_path / "plan.yaml")


def test_slurm_requeues_at_the_time_limit_after_the_run_has_saved(tmp_path):
    data = job(ours(tmp_path), "slurm", "--storage", tmp_path, *TRAINING)
    text = data["files"]["job.sbatch"]
    assert {"#SBATCH --requeue", "#SBATCH --nodes=2", "#SBATCH --signal=B:USR1@300"} <= set(text.splitlines())
    waits = "trap 'echo saved; exit 0' TERM\nkill -USR1 $PPID\nwhile true; do sleep 0.05; done\n"
    program(tmp_path / "bin", "srun", waits)
    program(tmp_path / "bin", "scontrol", '[[ "$1" == show ]] && echo node0 || echo "$@"\n')
    slurm = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2"}
    folder = _written(tmp_path, data)
    done = bash(folder / "job.sbatch", tmp_path / "bin", EXPORT_DIR=str(folder), **slurm)
    assert done.stdout.splitlines() == ["saved", "requeue 42"]


def test_slurm_does_not_requeue_a_run_that_ended(tmp_path):
    data = job(ours(tmp_path), "slurm", "--storage", tmp_path, *TRAINING)
    program(tmp_path / "bin", "scontrol", '[[ "$1" == show ]] && echo node0 || echo "$@"\n')
    slurm = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2"}
    folder = _written(tmp_path, data)
    for code in (0, 3):
        program(tmp_path / "bin", "srun", f"exit {code}\n")
        done = bash(folder / "job.sbatch", tmp_path / "bin", EXPORT_DIR=str(folder), **slurm)
        assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.parametrize("on", SYSTEMS)
def test_jobs_start_again_after_failures(on, tmp_path):
    files = job(ours(tmp_path), on, "--storage", "/shared")["files"]
    text = files[JOB_FILES[on]]
    if on == "kubernetes":
        assert of_kind(text, "JobSet")["spec"]["failurePolicy"] == {"maxRestarts": 3}
    elif on == "skypilot":
        assert documents(text)[0]["resources"]["job_recovery"] == {"max_restarts_on_errors": 3}
    elif on == "ray":
        spec = of_kind(text, "RayJob")["spec"]
        assert spec["backoffLimit"] == 3
        assert "--nodes 2 --processes 8 --gpus 8 --max-restarts 3 --" in spec["entrypoint"]
    else:
        assert "--max-restarts 3" in files["launch.sh"]


def test_a_plan_for_another_stack_is_sent_to_export(tmp_path):
    text = refused("launch", ours(tmp_path, stack="megatron-core"), "--on", "slurm", "--dry-run")
    assert "stack = 'megatron-core@" in text
    assert "export PLAN --to megatron" in text
    assert "--launcher" in text


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    words = ("--storage", "shared", "--image", "A B", "--address", "http://h", "--", "--resume", "never")
    data = job(ours(tmp_path, stack="deepspeed"), "kubernetes", *words, "--data", "corpus", code=2)
    fields = [problem["field"] for problem in data["problems"]]
    assert fields == ["storage", "image", "address", "--data", "--resume", "stack"]
    assert all(problem["suggestion"] for problem in data["problems"])


def test_a_target_that_does_not_exist_is_named_with_the_nearest(tmp_path):
    (problem,) = job(ours(tmp_path), "slrum", code=2)["problems"]
    assert (problem["field"], problem["value"]) == ("on", "slrum")
    assert "slurm" in problem["suggestion"]


@pytest.mark.parametrize("on", CONTAINERS)
def test_a_start_needs_steps_and_on_clusters_image_and_storage(on, tmp_path):
    done = run("launch", ours(tmp_path), "--on", on, "-o", tmp_path / "out", "--json")
    assert done.code == 2
    fields = {problem["field"] for problem in done.data["problems"]}
    assert fields == {"steps", "storage"} | ({"image"} if on != "ray" else set())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("on", CONTAINERS)
def test_an_image_takes_the_place_of_its_mark(on, tmp_path):
    text = job(ours(tmp_path), on, "--image", "ghcr.io/me/mesh:1")["files"][JOB_FILES[on]]
    assert IMAGE not in text
    assert "ghcr.io/me/mesh:1" in text


def test_a_refused_file_ends_with_1_and_its_reader(tmp_path, monkeypatch):
    spoilt = {**check_files.SCHEMAS, "JobSet": "trainjob"}
    monkeypatch.setattr(check_files, "SCHEMAS", spoilt)
    done = run("launch", ours(tmp_path), "--on", "kubernetes", "--dry-run", "-o", tmp_path / "out", "--json")
    assert done.code == 1
    assert any("kubeflow/trainer" in reason for reason in done.data["reasons"])
    assert not (tmp_path / "out").exists()


def test_without_the_program_the_files_are_written_and_the_command_is_named(tmp_path, monkeypatch):
    out = tmp_path / "a job"
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = run("launch", ours(tmp_path), "--on", "slurm", "-o", out, "--storage", "/shared", *TRAINING)
    assert done.code == 1
    assert "sbatch is not installed here" in done.err
    assert f"cd {shlex.quote(str(out))} && sbatch job.sbatch" in done.err.replace("\n", " ")
    assert (out / "job.sbatch").stat().st_mode & 0o100


@pytest.mark.parametrize(
    ("on", "name", "words"),
    [
        ("slurm", "sbatch", ["job.sbatch"]),
        ("kubernetes", "kubectl", ["apply", "-f", "job.jobset.yaml"]),
        ("skypilot", "sky", ["jobs", "launch", "--yes", "job.sky.yaml"]),
    ],
)
@pytest.mark.parametrize("code", [0, 4])
def test_the_program_is_started_in_the_folder_of_the_files(on, name, words, code, tmp_path, monkeypatch):
    out, image = tmp_path / "job", () if on == "slurm" else ("--image", "me/mesh:1")
    program(tmp_path / "bin", name, f'echo "$PWD" "$@"\nexit {code}\n')
    wanted = ("launch", ours(tmp_path), "--on", on, "-o", out, "--storage", "/shared", *image, "--json")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    done, said = run(*wanted, *TRAINING), " ".join([str(out), *words])
    if code:
        assert done.code == 1
        assert f"ended with {code}: {said}" in done.data["error"]
    else:
        assert (done.code, done.data["submitted"]) == (0, said)


def test_a_ray_cluster_at_an_address_is_sent_the_folder(tmp_path):
    words = ("--storage", "/shared", "--address", "http://head:8265")
    line = job(ours(tmp_path), "ray", *words)["command"]
    start = (
        "cd launch && ray job submit --address http://head:8265 --working-dir . -- python job.ray_ranks.py "
    )
    assert line.startswith(start)


def test_torchrun_starts_one_node_alone(tmp_path):
    done = run("launch", ours(tmp_path), "--on", "torchrun", "-o", tmp_path / "out", *TRAINING)
    assert done.code == 1
    assert "MASTER_ADDR=FIRST_NODE" in done.err


def test_files_that_a_plan_names_travel_with_it_into_containers(tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
    config |= {"num_attention_heads": 4, "vocab_size": 128, "max_position_embeddings": 4096}
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    plan = ours(tmp_path, model="small")
    here = job(plan, "slurm")["files"]
    assert parse_plan(here["plan.yaml"]).model == str(tmp_path / "small")
    away = job(plan, "kubernetes")["files"]
    assert parse_plan(away["plan.yaml"]).model == "model.json"
    assert json.loads(away["model.json"]) == config
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    both = [load(path).setting.model for path in (plan, _written(folder, {"files": away}) / "plan.yaml")]
    assert both[0].parameters == both[1].parameters


def test_paths_of_this_machine_become_absolute_where_nodes_see_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = job(ours(tmp_path), "slurm", "--", "--data", "corpus", "--out", "runs/a")["files"]["launch.sh"]
    assert f"--data {tmp_path}/corpus \\\n" in script
    assert f"RUN={tmp_path}/runs/a\n" in script


def _best(plan, *assume):
    """Return the best policy of a job of a fixed size with its interval in steps, as predict has them."""
    report = run("predict", plan, "--json", *(f"--assume={one}" for one in assume)).data
    best = next(one for one in report["goodput"]["policies"] if one["policy"] in ("stop", "restart"))
    return best["policy"], round(best["interval_s"] / report["step_time_s"])


def test_a_run_takes_the_best_policy_and_interval_and_says_so(tmp_path):
    plan = ours(tmp_path)
    policy, steps = _best(plan, "checkpoint_async=true")
    data = job(plan, "slurm")
    script = data["files"]["launch.sh"]
    assert f"--checkpoint-every {steps} \\\n  --checkpoint-async \\\n  --on-fault {policy} \\\n" in script
    assert any(f"--on-fault {policy}, the best policy" in remark for remark in data["remarks"])
    assert f"# The run saves every {steps} steps" in script


def test_jobs_of_a_fixed_size_restart_though_replicas_could_shrink(tmp_path):
    plan = ours(
        tmp_path,
        cluster="h100-sxm-80gb x 4096",
        layout="{dp_replicate: 256, dp_shard: 16}",
        workload="{seq_len: 4096, global_batch: 4096}",
    )
    assert "--on-fault restart \\\n" in job(plan, "slurm")["files"]["launch.sh"]


@pytest.mark.parametrize(
    ("asked", "there", "not_there"),
    [
        (("--checkpoint-every", "5"), ["--checkpoint-every 5 ", "--on-fault "], ["--checkpoint-async"]),
        (("--on-fault", "restart"), ["--on-fault restart ", "--checkpoint-async"], ["replan"]),
        (("--checkpoint-every", "5", "--on-fault", "stop"), ["--on-fault stop "], ["best"]),
        (("--steps", "2"), ["--on-fault "], ["--checkpoint-every"]),
    ],
)
def test_what_is_asked_for_stays(asked, there, not_there, tmp_path):
    script = job(ours(tmp_path), "slurm", "--", *asked)["files"]["launch.sh"]
    assert [text for text in there if text not in script] == []
    assert [text for text in not_there if text in script] == []


KNOWN_FAILURES = "pools: [{device: DEVICE, count: 16}]\nfailures_per_1000_node_days: 5\n"
SMALL_HOST = "pools: [{device: h100-sxm-80gb, count: 16, node: {like: dgx-h100, host_memory_gib: 4}}]\n"


@pytest.mark.parametrize(
    ("cluster", "in_background", "policy"),
    [
        ("pools: [{device: mi300x, count: 16}]\n", False, False),
        (KNOWN_FAILURES.replace("DEVICE", "mi300x"), True, True),
        (KNOWN_FAILURES.replace("DEVICE", "trainium-1"), False, True),
        (SMALL_HOST, False, True),
    ],
    ids=["unknown failures", "known failures", "an unknown link to the host", "a host without room"],
)
def test_a_run_is_careful_where_a_cluster_is_unknown_or_small(cluster, in_background, policy, tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster, encoding="utf-8")
    script = job(ours(tmp_path, cluster=str(file)), "slurm")["files"]["launch.sh"]
    assert ("--checkpoint-async" in script, "--on-fault" in script) == (in_background, policy)
    assert "--checkpoint-every" in script


def test_the_plan_of_the_job_is_the_one_that_was_given(tmp_path):
    plan = ours(tmp_path)
    found = parse_plan(job(plan, "kubernetes")["files"]["plan.yaml"])
    assert found == load(plan).short


def test_a_plan_that_the_runtime_refuses_is_refused_before_any_file(tmp_path):
    with pytest.raises(InputError):
        launch_plan.prepared(
            Path(ours(tmp_path, layout="{dp_shard: 3}")), launch_plan.LaunchRequest(on="slurm")
        )
