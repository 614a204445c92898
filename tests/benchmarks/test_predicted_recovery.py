"""Predicted sections of the page of recovery: pauses at published set-ups, and policies at published failure rates."""

import sys

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "benchmarks" / "recover"))
import checkpoint_pauses
import goodput_policies

PAGE = (ROOT / "benchmarks" / "recover.md").read_text(encoding="utf-8")


def test_copies_at_the_largest_set_up_hide_behind_the_passes():
    """Llama-3-70B on 20 nodes: 14 bytes for each parameter on 80 devices, PCIe 4.0 at 0.82 of its rate."""
    of = checkpoint_pauses.set_up("llama-3-70b", 20)
    assert of.rank_bytes >= of.bytes / 80
    assert of.copy_s == pytest.approx(of.rank_bytes / (0.82 * 31.508e9))
    assert of.copy_s < of.passes_s < of.step_s
    for rate in (0.1, of.node_gbyte / of.step_s, 100.0):
        assert 1 < of.faster(rate, 1) <= 2 + 1e-9
    assert of.faster(of.node_gbyte / of.step_s, 1) == pytest.approx(2)


@pytest.mark.parametrize("case", goodput_policies.CASES, ids=lambda case: case.name)
def test_policies_at_published_rates_are_on_the_page(case):
    found = goodput_policies.goodput(case)
    shares = {one["policy"]: one["useful_share"] for one in found["policies"]}
    assert shares["stop"] < shares["restart"]
    assert ("shrink" in shares) == ("dp_replicate" in case.layout)
    assert f"| {case.name} | {found['mtbf_hours']:.1f} h |" in PAGE
