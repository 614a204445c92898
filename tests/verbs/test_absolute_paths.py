"""Plans that mean the same wherever they are read."""

import json

import pytest
from local_cluster import CONFIG, machine_and_model

from meshwright.plans.files.plan_file import parse_plan
from meshwright.verbs.absolute_paths import with_whole_paths

PLAN = """plan: 1
model: MODEL
cluster: CLUSTER
workload: {seq_len: 64, global_batch: 8}
stack: meshwright
layout: {}
"""


def named(model, cluster="h100-sxm-80gb x 1"):
    plan = with_whole_paths(parse_plan(PLAN.replace("MODEL", model).replace("CLUSTER", cluster)))
    return plan.model, plan.cluster, plan.stack


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    machine_and_model(tmp_path)
    return tmp_path


def test_files_get_whole_paths_and_folders_stay_folders(here):
    assert named("ours", "host.yaml") == (str(here / "ours"), str(here / "host.yaml"), "meshwright")
    assert named("./ours/config.json")[0] == str(here / "ours" / "config.json")
    assert named(str(here / "ours"))[0] == str(here / "ours")


@pytest.mark.parametrize("model", ["nobody/model-7b", "./missing", "llama-3.1-8b", "missing.json"])
def test_other_names_stay(model):
    assert named(model) == (model, "h100-sxm-80gb x 1", "meshwright")
    assert named(model, "missing.yaml")[1] == "missing.yaml"


def test_what_happens_to_be_called_like_a_name_is_not_taken_for_it(here):
    for name in ("meshwright", "h100-sxm-80gb x 1", "llama-3.1-8b"):
        (here / name).mkdir()
        (here / name / "config.json").write_text(json.dumps(CONFIG))
    assert named("llama-3.1-8b") == ("llama-3.1-8b", "h100-sxm-80gb x 1", "meshwright")
