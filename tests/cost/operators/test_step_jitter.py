"""A step waits for the slowest of its devices."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.price_plans import setting_hardware_times, slowest_of
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload


@pytest.mark.parametrize("devices", [2, 8, 64, 512])
def test_the_slowest_of_many_as_drawn(devices):
    drawn = np.random.default_rng(0).normal(0, 0.02, (2000, devices)).max(1)
    assert slowest_of(devices, 0.02) == pytest.approx(np.exp(drawn.mean()), rel=1e-3)


def test_one_device_or_equal_ones_wait_for_nobody():
    assert slowest_of(1, 0.5) == 1.0
    assert slowest_of(4096, 0.0) == 1.0


def test_a_cluster_says_how_much_its_devices_differ():
    workload = Workload(seq_len=4096, global_batch=64)
    usual = load_cluster("h100-sxm-80gb x 64")
    seconds = []
    for jitter in (0.0, None, 0.05):
        cluster = replace(usual, step_jitter=jitter)
        assert load_cluster(dump_cluster(cluster)).step_jitter == jitter
        setting = Setting(load_model("llama-3.1-8b"), cluster, workload, load_stack())
        forms = setting_hardware_times(setting)
        seconds.append((forms.gemm(8192, 4096, 4096), forms.pass_(1e9)))
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 3
