"""A tiny plan, and the surroundings in which jobs on this machine start it."""

import json
import os
import sys

import pytest
from launch_cases import START
from tiny_models import tiny_config


@pytest.fixture
def plan(tmp_path):
    """A tiny plan on two ranks."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config("llama")), encoding="utf-8")
    keys = {"plan": 1, "model": "config.json", "cluster": "h100-sxm-80gb x 2", "stack": "meshwright"}
    keys |= {"workload": {"seq_len": 24, "global_batch": 8}, "layout": {"dp_shard": 2}, "sharding": "zero1"}
    (folder / "plan.yaml").write_text(json.dumps(keys), encoding="utf-8")
    return folder / "plan.yaml"


@pytest.fixture
def environment(tmp_path):
    """Variables with a ``meshwright`` of this source on PATH; Ray needs no token on this machine alone."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "meshwright").write_text(f"#!{sys.executable}\n{START}\n", encoding="utf-8")
    (programs / "meshwright").chmod(0o755)
    search = os.pathsep.join([str(programs), os.environ["PATH"]])
    return {**os.environ, "PATH": search, "RAY_AUTH_MODE": "disabled"}
