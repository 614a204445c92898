"""Proofs of plans that synchronise: the published systems, what they report, and comparisons of two plans."""

import pytest

pytest.importorskip("torch")

from source_tree import ROOT

from meshwright import api
from meshwright.errors import InputError

SYSTEMS = sorted(path.stem for path in (ROOT / "examples" / "synchronise").glob("*.yaml"))
ROW = {"state", "over", "exchanges", "logged_bytes", "predicted_bytes", "difference_from_exact"}
DILOCO = """
plan: 1
model: smollm2-135m
cluster: a100-sxm-40gb x 8
workload: {seq_len: 1024, global_batch: 512, optimizer: {name: sgd, momentum: 0}}
stack: meshwright
layout: {dp_replicate: 8}
pipeline: {micro_batch: 8}
synchronise:
  - {state: parameter, over: dp_replicate, every: EVERY, weigh: WEIGH, outer: {sgd: {lr: 1.0}}}
"""


def system(name):
    return ROOT / "examples" / "synchronise" / f"{name}.yaml"


def diloco(folder, every=1, weigh="tokens"):
    path = folder / f"every-{every}-{weigh}.yaml"
    path.write_text(DILOCO.replace("EVERY", str(every)).replace("WEIGH", weigh), encoding="utf-8")
    return path


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", SYSTEMS)
def test_published_systems_are_proven_with_their_bytes(name):
    data = api.verify(system(name)).to_json()
    assert data["equal"], data
    entries = len(api.load(system(name)).long.synchronise)
    assert max(len(plan["synchronise"]) for plan in data["plans"]) == entries
    for plan in data["plans"]:
        for row in plan["synchronise"]:
            assert row.keys() == ROW
            assert row["exchanges"] >= 2
            assert row["logged_bytes"] == row["predicted_bytes"] > 0
            assert row["difference_from_exact"] > 1e-9


def test_local_steps_of_one_step_are_data_parallelism(tmp_path):
    data = api.verify(diloco(tmp_path), against="data-parallel").to_json()
    assert data["equal"]
    assert data["max_relative_error"] < 1e-12
    other = api.verify(diloco(tmp_path, weigh="equal"), against="data-parallel").to_json()
    assert not other["equal"]
    assert other["max_relative_error"] > 1e-6


def test_periods_of_two_plans_shrink_together(tmp_path):
    short, long = diloco(tmp_path, 100), diloco(tmp_path, 500)
    data = api.verify(long, against=short).to_json()
    assert [plan["synchronise"][0]["every"] for plan in data["plans"]] == [4, 2]
    assert data["steps"] == 8
    assert not data["equal"]
    assert api.verify(long, against=long).to_json()["equal"]


def test_plans_of_other_models_are_not_compared(tmp_path):
    with pytest.raises(InputError, match=r"against\.model"):
        api.verify(diloco(tmp_path), against=system("terngrad"))
