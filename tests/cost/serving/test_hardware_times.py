"""Forms of kernels against measured points, and their limits."""

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.serving.hardware_times import serving_times_for

H100 = serving_times_for(load_cluster("h100-sxm-80gb x 16").pool)
GEMMS = [  # hardware/gemm_measured.csv, H100 in bf16: m, n, k, microseconds
    (64, 1024, 8192, 10.69),
    (64, 8192, 8192, 50.42),
    (256, 4096, 4096, 18.71),
    (1024, 12288, 4096, 133.26),
    (16384, 8192, 8192, 2817.62),
]


@pytest.mark.parametrize(("m", "n", "k", "microseconds"), GEMMS)
def test_products_in_16_bit_are_within_12_percent_of_measured_ones(m, n, k, microseconds):
    assert H100.product(m, k, n, "bf16") == pytest.approx(microseconds * 1e-6, rel=0.12)


@pytest.mark.parametrize(  # hardware/nccl_measured.csv: custom all-reduce of 8 H100
    ("logical_bytes", "microseconds"), [(4096, 3.53), (262144, 10.17), (4194304, 51.9), (134217728, 575.47)]
)
def test_custom_all_reduces_are_within_20_percent_of_measured_ones(logical_bytes, microseconds):
    assert H100.all_reduce(logical_bytes, 8) == pytest.approx(microseconds * 1e-6, rel=0.2)


def test_all_reduces_over_two_nodes_and_over_pcie_are_the_librarys_in_a_graph():
    library = H100.forms.collective("all-reduce", 1e6, 16, 8)
    apart = H100.forms.constants["multi_process_latency_s"] - H100.constants["gather_latency_s"]
    assert H100.all_reduce(1e6, 16) == pytest.approx(library - apart)
    pcie = serving_times_for(load_cluster("a100-pcie-80gb x 8").pool)
    assert pcie.all_reduce_curve is None
    assert pcie.all_reduce(1e6, 4) == pcie.forms.collective(
        "all-reduce", 1e6, 4, np.minimum(4, pcie.forms.domain)
    )


def test_nothing_takes_no_time():
    assert H100.product(0, 4096, 4096, "fp8") == 0
    assert H100.grouped_product(0, 0, 4096, 4096, "fp8") == 0
    assert H100.pass_(0) == 0
    assert H100.all_reduce(0, 8) == 0
    assert H100.all_reduce(1e6, 1) == 0
    assert H100.exchange("all-to-all", 1e6, 1) == 0


def test_weights_of_four_bits_multiply_in_16_where_a_device_has_no_rate_of_four():
    assert H100.peak_of("fp4") == H100.peak_of("bf16")
    assert H100.peak_of("fp8-block") == 2 * H100.peak_of("bf16") + 1e12
    b200 = serving_times_for(load_cluster("b200 x 8").pool)
    assert b200.peak_of("fp4") == 4 * b200.peak_of("bf16")


def test_a_grouped_product_of_few_rows_reads_the_weights_of_its_experts():
    few, more = (float(H100.grouped_product(n, n, 4096, 1536, "fp8")) for n in (8.0, 16.0))
    weights = 4096 * 1536 / (H100.constants["experts_memory_efficiency"] * H100.forms.memory_bytes_per_s)
    assert more - few == pytest.approx(8 * weights, rel=0.1)
