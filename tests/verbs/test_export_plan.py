"""The verb ``export`` on plans that serve: files, remarks, and refusals of targets and options by name."""

import json
import os

import pytest
import yaml
from command_runs import refused, run
from serving_cases import ONE_POOL, POOLS

from meshwright import api
from meshwright.errors import UnsupportedError
from meshwright.frameworks.export_targets import SERVING_TARGETS, TARGET_NAMES, TARGETS

TRAINS = """\
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
stack: megatron-core
workload: {seq_len: 8192, global_batch: 64}
layout: {pp: 1, dp_replicate: 1, dp_shard: 8, tp: 1}
"""


@pytest.fixture
def serves(tmp_path):
    path = tmp_path / "serves.yaml"
    path.write_text(ONE_POOL, encoding="utf-8")
    return path


@pytest.mark.parametrize("target", SERVING_TARGETS)
def test_files_are_written_and_printed_in_the_public_form(serves, tmp_path, target):
    done = run("export", serves, "--to", target, "--json", "-o", tmp_path / "out")
    assert done.code == 0
    assert set(done.data) == {"files", "refused"}
    for path, text in done.data["files"].items():
        assert (tmp_path / "out" / path).read_text(encoding="utf-8") == text
        assert text.endswith("\n")
    assert {os.path.basename(path) for path in done.data["files"]} >= {"pool-all.sh", "README.md"}
    assert done.data == api.export(serves, to=target) == api.export(yaml.safe_load(ONE_POOL), to=target)


def test_remarks_go_to_standard_error(serves):
    done = run("export", serves, "--to", "sglang")
    assert (
        "Not said to the target: pools.all.batching.kv_fraction = 0.9 (written as --mem-fraction-static"
        in done.err
    )
    assert "# ==== sglang/pool-all.sh ====" in done.out


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_that_serves_has_no_files_of_a_framework_that_trains(serves, target):
    message = refused("export", serves, "--to", target)
    assert f"to = '{target}': trains, and the plan serves" in message
    assert "vllm, sglang, tensorrt-llm" in message


@pytest.mark.parametrize("target", SERVING_TARGETS)
def test_a_plan_that_trains_has_no_commands_of_an_engine(tmp_path, target):
    path = tmp_path / "trains.yaml"
    path.write_text(TRAINS, encoding="utf-8")
    message = refused("export", path, "--to", target)
    assert f"to = '{target}': serves, and the plan trains" in message


def test_options_of_plans_that_train_are_refused_together(serves):
    message = refused(
        "export", serves, "--to", "vllm", "--launcher", "skypilot", "--check", "--python", "python3"
    )
    assert all(f"{name} = " in message for name in ("launcher", "check", "python"))


def test_an_unknown_target_names_the_known_ones(serves):
    message = refused("export", serves, "--to", "vlm")
    assert "to = 'vlm': is no target of export" in message
    assert "vllm" in message
    assert len(TARGET_NAMES) == len(TARGETS) + len(SERVING_TARGETS)


def test_everything_that_an_engine_lacks_is_refused_at_once():
    data = yaml.safe_load(POOLS)
    data["pools"]["write"]["overlap"] = "tile"
    data["pools"]["fill"]["allreduce"] = "ring"
    with pytest.raises(UnsupportedError) as caught:
        api.export(data, to="tensorrt-llm")
    fields = [problem.field for problem in caught.value.problems]
    assert sorted(fields) == ["pools.fill.allreduce", "pools.write.overlap"]
    assert json.loads(json.dumps([problem.to_json() for problem in caught.value.problems]))


def test_a_broken_law_is_said_before_an_engine_is_asked(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(ONE_POOL.replace("tp: 4", "tp: 3"), encoding="utf-8")
    assert "pools.all.layout.tp" in refused("export", path, "--to", "vllm")
