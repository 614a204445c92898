"""Advice to measure the network cards, where a step depends on them."""

import pytest

from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.verbs.predict.predict_plan import predicted

CALIBRATED = "pools: [{count: 128, device: h100-sxm-80gb}]\ncalibration: {nic_efficiency: 0.7}\n"


def advice(cluster, **layout):
    plan = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "llama-3.1-8b",
            "cluster": str(cluster),
            "workload": {"seq_len": 4096, "global_batch": 128},
            "layout": layout,
            "sharding": "zero3",
        }
    )
    return predicted(resolve(plan)).interval["advice"] or ""


def test_a_step_that_depends_on_the_cards_names_the_command_that_measures_them():
    found = advice("h100-sxm-80gb x 128", dp_shard=128)
    assert "Network cards 25% slower than usual would make the step" in found
    assert "`all_reduce_perf -b 1M -e 8G -f 2 -g 8`" in found
    assert "meshwright measure --collective-tests" in found


@pytest.mark.parametrize("cluster", ["h100-sxm-80gb x 8", "calibrated"])
def test_one_node_or_a_measured_network_has_nothing_to_measure(cluster, tmp_path):
    if cluster == "calibrated":
        cluster = tmp_path / "lab.yaml"
        cluster.write_text(CALIBRATED, encoding="utf-8")
    devices = 8 if "x 8" in str(cluster) else 128
    assert "Network cards" not in advice(cluster, dp_shard=devices)
