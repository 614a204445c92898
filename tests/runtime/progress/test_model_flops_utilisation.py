from dataclasses import replace

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.flops_per_token import model_flops_per_token
from meshwright.model.load import load_model
from meshwright.runtime.progress.model_flops_utilisation import utilisation


def test_a_published_run_has_the_mfu_that_its_rate_gives():
    """64 H100 at a rate that fills the dense bf16 peak have an MFU of 1."""
    cluster = load_cluster("h100-sxm-80gb x 64")
    flops = model_flops_per_token(load_model("llama-3.1-70b"), 8192, causal=False)
    found = utilisation(flops, cluster, "bf16")
    full_rate = 64 * cluster.pool.device.peak_flops["bf16"] / flops
    assert found.mfu(full_rate) == pytest.approx(1.0)
    assert found.mfu(0.4 * full_rate) == pytest.approx(0.4)
    assert cluster.pool.device.source in found.origin


def test_without_a_peak_there_is_none_and_it_is_said_why():
    assert utilisation(1e9, None, "bf16").mfu(1e6) is None
    assert "null: the peak of the devices" in utilisation(1e9, None, "bf16").origin
    without_fp8 = utilisation(1e9, load_cluster("a100-sxm-80gb x 8"), "fp8")
    assert without_fp8.mfu(1e6) is None
    assert without_fp8.origin == "null: no fp8 peak of a100-sxm-80gb is known"


def test_pools_of_several_devices_add_up():
    h100, a100 = (load_cluster(f"{name}-sxm-80gb x 8").pool for name in ("h100", "a100"))
    both = replace(load_cluster("h100-sxm-80gb x 8"), pools=(h100, replace(a100, name="slow")))
    peak = 8 * (h100.device.peak_flops["bf16"] + a100.device.peak_flops["bf16"])
    assert utilisation(1.0, both, "bf16").mfu(peak) == pytest.approx(1.0)
