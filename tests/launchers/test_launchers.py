import copy
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from export_cases import case, short_plans
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from launcher_cases import FILES, launched, of_kind

from meshwright.cluster.load import load_cluster
from meshwright.errors import InputError, UnsupportedError
from meshwright.frameworks.export_targets import TARGETS
from meshwright.frameworks.exporting.export_result import Export
from meshwright.frameworks.exporting.launcher_files import launch_files
from meshwright.launchers import LAUNCHERS
from meshwright.launchers.accelerators import accelerators
from meshwright.launchers.job_nodes import IMAGE, job_for
from meshwright.launchers.kubernetes import MOUNT, object_name
from meshwright.launchers.parsers.check_files import documents, schema_faults
from meshwright.launchers.rayjob import PROGRAM
from meshwright.launchers.skypilot import skypilot
from meshwright.launchers.yaml_text import yaml_documents

PRINTS = '#!/usr/bin/env bash\nprintf "%s\\n" "$@"\n'


@pytest.mark.parametrize("launcher", FILES)
@pytest.mark.parametrize("target", TARGETS)
@given(this=short_plans())
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_file_fits_the_schema_of_its_launcher(launcher, target, this):
    assume(not this.errors)
    try:
        export = launched(this, launcher, target)
    except UnsupportedError:
        assume(False)
    (path,) = [path for path in export.files if path.endswith(FILES[launcher])]
    found = documents(export.files[path])
    assert found
    assert [fault for document in found for fault in schema_faults(document)] == []


@pytest.mark.parametrize("launcher", FILES)
def test_the_schemas_catch_an_added_key_at_every_level(launcher):
    text = launched(case(), launcher).files[f"megatron/{FILES[launcher]}"]
    for document in documents(text):
        for path in _mappings(document):
            spoilt = copy.deepcopy(document)
            inner = spoilt
            for key in path:
                inner = inner[key]
            inner["tpyo"] = 1
            if path[-1:] not in (["nodeSelector"], ["limits"], ["data"], ["rayStartParams"]):
                assert schema_faults(spoilt), path


def _mappings(value, path=()):
    if isinstance(value, dict):
        yield list(path)
        for key, item in value.items():
            yield from _mappings(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _mappings(item, (*path, index))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_nodes_and_devices_are_those_of_the_job(launcher):
    this = case(devices="b200 x 32", layout={"dp_shard": 32}, sharding="zero1")
    text = launched(this, launcher).files[f"megatron/{FILES.get(launcher, 'job.sbatch')}"]
    if launcher == "sbatch":
        assert "#SBATCH --nodes=4" in text
        assert "#SBATCH --gpus-per-node=8" in text
    elif launcher == "skypilot":
        (task,) = documents(text)
        assert (task["num_nodes"], task["resources"]["accelerators"]) == (4, "B200:8")
    elif launcher == "trainjob":
        spec = of_kind(text, "TrainJob")["spec"]
        assert (spec["trainer"]["numNodes"], spec["trainer"]["numProcPerNode"]) == (4, 8)
        assert spec["trainer"]["resourcesPerNode"] == {"limits": {"nvidia.com/gpu": 8}}
        assert _patched_pod(spec)["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-B200"}
    elif launcher == "rayjob":
        spec = of_kind(text, "RayJob")["spec"]
        (workers,) = spec["rayClusterSpec"]["workerGroupSpecs"]
        pod = workers["template"]["spec"]
        assert {workers[name] for name in ("replicas", "minReplicas", "maxReplicas")} == {4}
        assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-B200"}
        assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 8}}
        assert "--nodes 4 --processes 1 --gpus 8 -- bash" in spec["entrypoint"]
        assert "nodeSelector" not in spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    else:
        worker = _worker(text)
        assert (worker["parallelism"], worker["completions"], worker["completionMode"]) == (4, 4, "Indexed")
        assert _pod(text)["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-B200"}
        assert _pod(text)["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 8}}


def _worker(text):
    (job,) = of_kind(text, "JobSet")["spec"]["replicatedJobs"]
    return job["template"]["spec"]


def _pod(text):
    return _worker(text)["template"]["spec"]


def _patched_pod(spec):
    (patch,) = spec["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    return job["template"]["spec"]["template"]["spec"]


def test_the_default_launcher_changes_nothing():
    job = job_for(case().cluster, case().model.name)
    for target in TARGETS:
        export = case(sharding="zero3").to(target)
        assert launch_files(export, job, "sbatch") == export


def test_the_default_launcher_writes_what_exporters_write():
    export, job = case().to("megatron"), job_for(case().cluster, case().model.name)
    bare = {path: text for path, text in export.files.items() if not path.endswith("job.sbatch")}
    assert launch_files(replace(export, files=bare), job, "sbatch").files == export.files


@pytest.mark.parametrize("launcher", FILES)
def test_files_of_other_launchers_go_and_scripts_stay(launcher):
    this = case(sharding="zero1")
    export, job = this.to("megatron"), job_for(this.cluster, this.model.name)
    found = launch_files(export, job, launcher)
    program = {f"megatron/{PROGRAM}"} if launcher == "rayjob" else set()
    assert (
        set(found.files)
        == {"megatron/args.sh", "megatron/launch.sh", f"megatron/{FILES[launcher]}"} | program
    )
    assert found.files["megatron/launch.sh"] == export.files["megatron/launch.sh"]
    assert launch_files(launch_files(export, job, "jobset"), job, launcher) == found
    assert (found.target, found.release, found.refused) == (export.target, export.release, export.refused)


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
def test_the_config_map_carries_the_scripts_letter_by_letter(kind):
    export = launched(case(), kind.lower())
    text = export.files[f"megatron/{FILES[kind.lower()]}"]
    scripts = of_kind(text, "ConfigMap")
    assert scripts["data"] == {name: export.files[f"megatron/{name}"] for name in ("args.sh", "launch.sh")}
    pod = _pod(text) if kind == "JobSet" else _patched_pod(of_kind(text, "TrainJob")["spec"])
    volume = {v["name"]: v for v in pod["volumes"]}
    assert volume["scripts"]["configMap"]["name"] == scripts["metadata"]["name"]
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert mounts == {"scripts": MOUNT, "shared-memory": "/dev/shm"}
    assert set(mounts) == set(volume)


@pytest.mark.parametrize("launcher", FILES)
def test_the_image_is_refused_until_it_is_set_and_the_top_says_so(launcher):
    text = launched(case(), launcher).files[f"megatron/{FILES[launcher]}"]
    top = [line for line in text.splitlines() if line.startswith("#")]
    assert top[0].startswith("# meshwright")
    assert any(IMAGE in line and "Set first" in line for line in top)
    assert text.count(IMAGE) == (3 if launcher == "rayjob" else 2)
    assert IMAGE.lower() != IMAGE


def _environment(folder, **variables):
    (folder / "torchrun").write_text(PRINTS)
    (folder / "torchrun").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder), **variables}


def _run(command, folder, **variables):
    known = _environment(folder, **variables)
    done = subprocess.run(
        command, env=known, capture_output=True, text=True, check=True, cwd=folder, timeout=30
    )
    return done.stdout.splitlines()


def test_the_task_of_skypilot_starts_torchrun_at_the_first_node(tmp_path):
    export = launched(case(), "skypilot")
    for path, text in export.files.items():
        (tmp_path / Path(path).name).write_text(text)
    (task,) = documents(export.files["megatron/job.sky.yaml"])
    assert task["workdir"] == "."
    known = {
        "SKYPILOT_NODE_IPS": "10.0.0.7\n10.0.0.8\n",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_TASK_ID": "t-1",
    }
    words = _run(["bash", "-c", task["run"]], tmp_path, **known)
    assert words[words.index("--rdzv-endpoint") + 1] == "10.0.0.7:29500"
    assert words[words.index("--nnodes") + 1] == "2"
    assert words[words.index("--rdzv-id") + 1] == "t-1"
    assert words[words.index("--nproc-per-node") + 1] == "8"


def _pod_words(kind, folder, index, port):
    """What torchrun is given in pod ``index``: the scripts lie where the volume would be mounted."""
    export = launched(case(), kind.lower())
    text = export.files[f"megatron/{FILES[kind.lower()]}"]
    for name, script in of_kind(text, "ConfigMap")["data"].items():
        (folder / name).write_text(script)
    (folder / "hostname").write_text("#!/bin/sh\necho pod-0\n")
    (folder / "hostname").chmod(0o755)
    if kind == "JobSet":
        container = _pod(text)["containers"][0]
        known = {e["name"]: e["value"] for e in container["env"]} | {"JOB_COMPLETION_INDEX": str(index)}
        known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if index else {}
    else:
        container = of_kind(text, "TrainJob")["spec"]["trainer"]
        known = {e["name"]: e["value"] for e in container["env"]}
        known |= {"PET_NNODES": "2", "PET_NODE_RANK": str(index)}
        known |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
    (args,) = container["args"]
    return _run([*container["command"], args.replace(MOUNT, str(folder))], folder, **known)


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
def test_the_first_pod_meets_the_others_under_its_own_name(kind, tmp_path):
    words = _pod_words(kind, tmp_path, 0, 29500)
    assert words[words.index("--rdzv-endpoint") + 1] == "pod-0:29500"
    assert words[words.index("--nnodes") + 1] == "2"
    assert words[words.index("--rdzv-id") + 1] == object_name(job_for(case().cluster, case().model.name))


@pytest.mark.parametrize("kind", ["TrainJob", "JobSet"])
def test_another_pod_starts_when_the_first_one_answers(kind, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        words = _pod_words(kind, tmp_path, 1, port)
    assert words[words.index("--rdzv-endpoint") + 1] == f"127.0.0.1:{port}"


def test_the_pods_of_a_job_set_find_the_first_by_its_name_in_dns():
    text = launched(case(), "jobset").files["megatron/job.jobset.yaml"]
    name = of_kind(text, "JobSet")["metadata"]["name"]
    variables = {e["name"]: e["value"] for e in _pod(text)["containers"][0]["env"]}
    assert variables["MASTER_ADDR"] == f"{name}-workers-0-0.{name}"


def test_a_train_job_sets_no_variable_that_the_runtime_keeps_for_itself():
    text = launched(case(), "trainjob").files["megatron/job.trainjob.yaml"]
    spec = of_kind(text, "TrainJob")["spec"]
    assert not [e["name"] for e in spec["trainer"]["env"] if e["name"].startswith("PET_")]
    assert "env" not in _patched_pod(spec)["containers"][0]


@given(name=st.text(min_size=1, max_size=80))
@settings(max_examples=30, deadline=None)
def test_names_are_names_for_every_launcher(name):
    this = case()
    job = replace(job_for(this.cluster, name), name=name)
    (text,) = skypilot("# top", job, {}).values()
    assert [fault for task in documents(text) for fault in schema_faults(task)] == []
    for launcher in ("trainjob", "jobset", "rayjob"):
        text = LAUNCHERS[launcher]("# top", job, {"launch.sh": "echo\n"})[FILES[launcher]]
        assert [fault for document in documents(text) for fault in schema_faults(document)] == []


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True),
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"], include_characters="\n\t")),
    )
)
def test_text_comes_back_as_it_was(data):
    text = yaml_documents("# top", [{"data": data}, {"more": list(data.values())}])
    assert documents(text) == [{"data": data}, {"more": list(data.values())}]


def test_words_that_older_readers_take_for_booleans_are_quoted():
    words = ["yes", "No", "on", "y", "null", "1_000", "12:30", "1e3", ""]
    assert documents(yaml_documents("# top", [{"words": words}])) == [{"words": words}]


def test_a_launcher_that_does_not_exist_is_named_with_the_nearest():
    this = case()
    with pytest.raises(InputError) as caught:
        launched(this, "skypliot")
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("launcher", "skypliot")
    assert "skypilot" in problem.suggestion


def test_an_export_without_a_script_has_nothing_to_launch():
    job = job_for(case().cluster, "model")
    with pytest.raises(UnsupportedError) as caught:
        launch_files(Export(target="t", release="1", files={"t/plan.yaml": "a: 1\n"}), job, "jobset")
    assert caught.value.problems[0].field == "launcher"


@pytest.mark.parametrize("launcher", FILES)
def test_devices_that_a_launcher_does_not_know_are_refused_by_name(launcher):
    cluster = load_cluster("gaudi-3 x 16")
    export = case(sharding="zero1").to("megatron")
    with pytest.raises(UnsupportedError) as caught:
        launch_files(export, job_for(cluster, "model"), launcher)
    assert [problem.value for problem in caught.value.problems] == ["gaudi-3"]


def test_devices_without_a_known_label_get_no_selector_and_a_word_about_it():
    cluster = load_cluster("mi355x x 16")
    export = case(sharding="zero1").to("megatron")
    text = launch_files(export, job_for(cluster, "model"), "jobset").files["megatron/job.jobset.yaml"]
    assert "nodeSelector" not in _pod(text)
    assert "# No label of nodes with mi355x is known here: add a nodeSelector." in text.splitlines()
    assert _pod(text)["containers"][0]["resources"] == {"limits": {"amd.com/gpu": 8}}


def test_the_table_of_accelerators_names_devices_of_the_catalog():
    for device, row in accelerators().items():
        assert load_cluster(f"{device} x 8").pool.device.id == device
        assert row.skypilot
