"""The interval of a peak of memory, and the probability that a plan fits."""

from dataclasses import replace

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import constants
from meshwright.cost.uncertainty.memory_error import UNKNOWN, fits_probability, memory_interval
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload


def setting(stack="megatron-core", device="h100-sxm-80gb"):
    workload = Workload(seq_len=4096, global_batch=64)
    return Setting(load_model("llama-3.1-8b"), load_cluster(f"{device} x 8"), workload, load_stack(stack))


def test_an_unknown_stack_widens_the_peak():
    sure, unsure = memory_interval(setting()), memory_interval(setting("generic"))
    assert sure.low < 1 < sure.high
    assert unsure.low == pytest.approx(sure.low**UNKNOWN)
    assert unsure.sigma == pytest.approx(UNKNOWN * sure.sigma)


def test_a_device_without_measured_kernels_has_the_same_memory():
    assert memory_interval(setting(device="mi300x")) == memory_interval(setting())


def test_how_likely_a_plan_fits():
    known = setting()
    usable = constants()["usable_memory"] * known.cluster.pool.device.memory_bytes
    chances = [fits_probability(share * usable, known) for share in (0.5, 0.9, 1.0, 1.1, 2.0)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.999
    assert chances[2] == pytest.approx(0.5)
    assert chances[-1] < 0.001
    unknown = replace(known, stack=load_stack("generic"))
    assert fits_probability(0.9 * usable, unknown) < chances[1]
