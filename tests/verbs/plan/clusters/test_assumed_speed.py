"""An assumed MFU or efficiency: every step of a device family alike, without spread."""

import pytest
from cluster_questions import chosen

from meshwright.economy.assumptions import parse_assumptions
from meshwright.errors import InputError

MIXED = ("h100-sxm-80gb x <=16", "a100-sxm-80gb x <=8")


def test_each_family_is_scaled_by_the_plan_recommended_without_it():
    usual = {row["family"]: row for row in chosen(*MIXED, objective="cost").to_json()["families"]}
    found = chosen(*MIXED, objective="cost", assume=("h100-sxm-80gb:mfu=0.2",)).to_json()
    rows = {row["family"]: row for row in found["families"]}
    assert rows["a100-sxm-80gb"]["step_time_s"] == usual["a100-sxm-80gb"]["step_time_s"]
    factor = usual["h100-sxm-80gb"]["mfu"] / 0.2
    searched = {row["cluster"]: row for row in chosen(*MIXED, objective="cost").to_json()["clusters"]}
    for row in found["clusters"]:
        if row["state"] == "searched" and row["family"] == "h100-sxm-80gb":
            before = searched[row["cluster"]]
            assert row["step_time_s"] == pytest.approx(factor * before["step_time_s"])
            assert row["step_time_low_s"] == row["step_time_s"] == row["step_time_high_s"]
            assert row["mfu"] == pytest.approx(before["mfu"] / factor)


def test_one_cluster_is_brought_to_the_mfu():
    found = chosen("h100-sxm-80gb x 8", assume=("mfu=0.25",))
    report = found.proposals[0].report
    assert report.mfu == pytest.approx(0.25)
    assert sum(report.breakdown_s.values()) == pytest.approx(report.step_time_s)
    assert report.training["days_without_failures"]["low"] == report.training["days_without_failures"]["high"]
    assert "mfu = 0.25" in report.origin["step_time_s"]


def test_less_efficient_compute_takes_longer_and_leaves_networks_alone():
    usual = chosen("h100-sxm-80gb x 16").proposals[0]
    half = chosen("h100-sxm-80gb x 16", keep=_kept(usual.plan), assume=("efficiency=0.5",)).proposals[0]
    ratio = half.report.breakdown_s["compute"] / usual.report.breakdown_s["compute"]
    assert 1.5 < ratio <= 2.0
    assert half.report.step_time_s < 2 * usual.report.step_time_s
    assert half.report.mfu < usual.report.mfu


def _kept(plan):
    layout = plan.layout
    return (
        "cp=1",
        "recompute=none",
        "virtual_stages=1",
        "sharding=zero1",
        f"tp={layout.tp}",
        f"pp={layout.pp}",
    )


@pytest.mark.parametrize(
    "assume",
    [("mfu=1.2",), ("efficiency=0",), ("mfu=0.4", "efficiency=0.8"), ("h100:mfu=0.4", "efficiency=0.8")],
)
def test_speeds_that_cannot_be(assume):
    with pytest.raises(InputError):
        parse_assumptions(assume)


def test_what_is_assumed_of_all_families_is_remarked():
    found = chosen(*MIXED, objective="cost", assume=("usd_per_device_hour=2",))
    assert any(
        "is assumed for all of h100-sxm-80gb, a100-sxm-80gb" in remark
        for remark in found.proposals[0].report.remarks
    )
    alone = chosen(*MIXED, objective="cost", assume=("a100:usd_per_device_hour=2",))
    assert not any("is assumed for all" in remark for remark in alone.proposals[0].report.remarks)
