"""Laws of the forms of kernels and collectives, and the volumes that ring and hierarchical algorithms move."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_factors import WIRE_FACTOR

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import Curve, constants
from meshwright.cost.operators.kernel_and_collective_times import LOW_PRECISIONS, hardware_times_for
from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice, mean_dispatch_fanout
from meshwright.program.expert_dispatch.dispatch_forms import DeduplicatedBytes

DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200")
FORMS = {device: hardware_times_for(load_cluster(f"{device} x 8").pool, "bf16") for device in DEVICES}
POOL = load_cluster("b200 x 8").pool
LOW = {precision: hardware_times_for(POOL, precision) for precision in LOW_PRECISIONS}
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ring")
HUGE = 1e15
GAIN = constants()["exchange_gain"]

sizes = st.integers(16, 65536)
forms = st.sampled_from(list(FORMS.values()))
laws = settings(deadline=None, max_examples=60)


def collective(form, kind, size, ranks):
    return float(form.collective(kind, size, ranks, min(ranks, form.domain)))


@laws
@given(forms, sizes, sizes, sizes)
def test_a_gemm_lies_between_roofline_and_the_sum_of_its_parts(form, m, k, n):
    kernel = form.kernels
    compute = 2 * m * k * n / (kernel.gemm_efficiency * form.peak_16bit_flops)
    moving = 2 * (m * k + k * n + m * n) / (kernel.gemm_memory_efficiency * form.memory_bytes_per_s)
    beyond_launch = form.gemm(m, k, n) - kernel.gemm_launch_s
    assert max(compute, moving) * (1 - 1e-9) <= beyond_launch <= (compute + moving) * (1 + 1e-9)
    assert form.gemm(m, k, n) > 2 * m * k * n / form.peak_16bit_flops


@laws
@given(st.sampled_from([*FORMS.values(), *LOW.values()]), sizes, sizes, sizes, st.integers(1, 4096))
def test_a_gemm_grows_with_each_of_its_widths(form, m, k, n, more):
    base = form.gemm(m, k, n)
    assert base > 0
    assert min(form.gemm(m + more, k, n), form.gemm(m, k + more, n), form.gemm(m, k, n + more)) > base


@pytest.mark.parametrize("precision", LOW_PRECISIONS)
def test_a_large_low_precision_gemm_is_faster_than_a_16_bit_one_and_a_narrow_one_is_not(precision):
    low, sixteen = LOW[precision], FORMS["b200"]
    assert low.gemm(16384, 16384, 16384) < sixteen.gemm(16384, 16384, 16384)
    assert low.gemm(16384, 128, 128) > sixteen.gemm(16384, 128, 128)
    peak = POOL.device.peak_flops["fp4" if precision == "nvfp4" else "fp8"]
    assert low.gemm(16384, 16384, 16384) > 2 * 16384**3 / peak


@laws
@given(forms, st.integers(1, 10**6), st.sampled_from([1, 2, 8, 64]))
def test_grouped_gemms_lose_efficiency_with_fewer_rows_per_expert(form, rows, experts):
    one = form.grouped_gemm(rows, experts, 1024, 1024)
    spread = form.grouped_gemm(rows, 2 * experts, 1024, 1024)
    assert spread > one >= 2.0 * rows * 1024 * 1024 / form.peak_16bit_flops


@laws
@given(forms, st.sampled_from([512, 1024, 4096]), st.sampled_from([512, 2048, 8192]))
def test_grouped_gemms_of_wide_experts_come_near_to_a_dense_gemm(form, inputs, outputs):
    rows, experts, growth = 2**20, 8, 64
    ratios = [
        form.grouped_gemm(rows, experts, inputs * scale, outputs * scale)
        / form.gemm(rows, inputs * scale, outputs * scale)
        for scale in (1, growth)
    ]
    assert 1 < ratios[1] < ratios[0]
    assert ratios[1] < 1.2


@laws
@given(forms, st.sampled_from(KINDS), st.floats(1, 1e11), st.floats(1.001, 100), st.integers(1, 9))
def test_a_collective_grows_with_its_bytes(form, kind, size, factor, power):
    assert collective(form, kind, size * factor, 2**power) > collective(form, kind, size, 2**power)


@laws
@given(forms, st.sampled_from(KINDS), st.floats(1, 1e11))
def test_a_collective_grows_with_its_ranks(form, kind, size):
    seconds = [collective(form, kind, size, 2**power) for power in range(10)]
    assert seconds[0] == 0
    assert all(a < b for a, b in pairwise(seconds))


@laws
@given(forms, st.floats(1, 1e11), st.integers(1, 9))
def test_all_gather_and_reduce_scatter_cost_the_same(form, size, power):
    gather = collective(form, "all-gather", size, 2**power)
    assert gather == collective(form, "reduce-scatter", size, 2**power) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_send_or_nobody_to_send_to_costs_nothing(kind):
    for form in FORMS.values():
        assert form.collective(kind, 0, 8, 8) == 0
        assert form.collective(kind, 1e9, 1, 1) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_collectives_are_the_same_as_one_by_one(kind):
    form = FORMS["h100-sxm-80gb"]
    size, ranks, local = np.array([1e3, 1e6, 1e9, 0]), np.array([2, 16, 64, 8]), np.array([2, 8, 8, 8])
    together = form.collective(kind, size, ranks, local)
    for i in range(len(size)):
        assert together[i] == form.collective(kind, float(size[i]), int(ranks[i]), int(local[i]))


def exact_links(form, fast, nic, gain=1.0):
    """Links of given bandwidth, without latency and saturation of the fast ones, and as good for many domains."""
    curve = Curve(0.0, 0.0, fast, 0.0, 0.0)
    kernels = replace(form.kernels, all_reduce=curve, all_gather=curve)
    form = replace(form, constants={**form.constants, "nic_loss_exponent": 0.0})
    return replace(form, kernels=kernels, nic_bytes_per_s=nic / constants()["nic_efficiency"] / gain)


@pytest.mark.parametrize(("kind", "bus"), [("all-reduce", 2), ("all-gather", 1), ("reduce-scatter", 1)])
def test_volumes_in_a_domain_and_across_domains(kind, bus):
    """(g−1)/g of the tensor over the fast link, (k−1)/k of a g-th of it over each NIC; twice for all-reduce."""
    for ranks in (2, 4, 8):
        links = exact_links(FORMS["h100-sxm-80gb"], 1.0, 1.0)
        assert links.collective(kind, HUGE, ranks, ranks) == pytest.approx(bus * (ranks - 1) / ranks * HUGE)
    for domains in (2, 4, 32):
        by_nic = exact_links(FORMS["h100-sxm-80gb"], 1e12, 1.0)
        wire = bus * (domains - 1) / domains * HUGE / 8
        assert by_nic.collective(kind, HUGE, 8 * domains, 8) == pytest.approx(wire, rel=1e-6)
        by_link = exact_links(FORMS["h100-sxm-80gb"], 1.0, 1e12)
        assert by_link.collective(kind, HUGE, 8 * domains, 8) == pytest.approx(bus * 7 / 8 * HUGE, rel=1e-6)


def test_all_to_all_sends_to_each_rank_its_share():
    """Of n−1 shares of 1/n, g−1 stay in the domain and n−g leave it."""
    by_link = exact_links(FORMS["h100-sxm-80gb"], 1.0, 1e12)
    by_nic = exact_links(FORMS["h100-sxm-80gb"], 1e12, 1.0, GAIN)
    assert by_link.collective("all-to-all", HUGE, 8, 8) == pytest.approx(7 / 8 * HUGE)
    assert by_link.collective("all-to-all", HUGE, 32, 8) == pytest.approx(7 / 32 * HUGE, rel=1e-6)
    assert by_nic.collective("all-to-all", HUGE, 32, 8) == pytest.approx(24 / 32 * HUGE, rel=1e-6)


def test_copies_that_go_once_cross_to_every_domain_and_are_handed_on_there():
    """Of 8 copies of a token, alike to 4 domains of 8 ranks, as many cross as domains and stay as ranks are reached."""
    choice, token = ExpertChoice(experts=256, chosen=8), HUGE / 8
    once = DeduplicatedBytes(
        across_bytes=token * mean_dispatch_fanout(4, choice),
        inside_bytes=token * mean_dispatch_fanout(32, choice),
    )
    by_link = exact_links(FORMS["h100-sxm-80gb"], 1.0, 1e12)
    by_nic = exact_links(FORMS["h100-sxm-80gb"], 1e12, 1.0, GAIN)
    handed_on = token * mean_dispatch_fanout(32, choice) * 7 / 8
    assert by_link.collective("all-to-all", HUGE, 32, 8, once) == pytest.approx(handed_on, rel=1e-6)
    crossing = token * mean_dispatch_fanout(4, choice) * 3 / 4
    assert by_nic.collective("all-to-all", HUGE, 32, 8, once) == pytest.approx(crossing, rel=1e-6)
    one_expert = DeduplicatedBytes(HUGE, HUGE)
    for links in (by_link, by_nic):
        assert links.collective("all-to-all", HUGE, 8, 8, one_expert) == pytest.approx(
            links.collective("all-to-all", HUGE, 8, 8)
        )


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "all-to-all"])
def test_each_doubling_of_the_domains_takes_a_share_of_the_cards(kind):
    exact = exact_links(FORMS["h100-sxm-80gb"], 1e12, 1.0)
    form = replace(exact, constants={**exact.constants, "nic_loss_exponent": 0.1})
    for doublings in range(6):
        ranks = 16 * 2**doublings
        slower = form.collective(kind, HUGE, ranks, 8) / exact.collective(kind, HUGE, ranks, 8)
        assert slower == pytest.approx(2 ** (0.1 * doublings), rel=1e-6)


def test_a_ring_has_a_hop_for_each_rank_and_a_tree_one_for_each_doubling():
    """A tiny message shows the latency alone: n − k hops inside domains, k − 1 between them."""
    form = FORMS["h100-sxm-80gb"]
    inside, hop = form.kernels.all_gather.latency_per_rank_s, form.constants["nic_ring_hop_s"]
    seconds = {ranks: float(form.collective("all-gather", 1.0, ranks, 8)) for ranks in (16, 128, 1024)}
    assert seconds[128] - seconds[16] == pytest.approx(98 * inside + 14 * hop, rel=1e-3)
    assert seconds[1024] - seconds[128] == pytest.approx(784 * inside + 112 * hop, rel=1e-3)
    tree = form.constants["nic_tree_hop_s"]
    reduced = {ranks: float(form.collective("all-reduce", 1.0, ranks, 8)) for ranks in (16, 1024)}
    assert reduced[1024] - reduced[16] == pytest.approx(6 * tree, rel=1e-2)


def test_published_shares_of_the_cards_over_more_nodes():
    """All-to-alls of p6-b300 over 2 to 32 nodes reach .96, .91, .92, .79 and .72 of their cards (nccl-tests)."""
    form = exact_links(FORMS["h100-sxm-80gb"], 1e12, 1.0)
    form = replace(form, constants=dict(constants()))
    reached = [
        (8 * k - 8)
        / (8 * k)
        * HUGE
        / float(form.collective("all-to-all", HUGE, 8 * k, 8) * form.nic_bytes_per_s)
        for k in (2, 4, 8, 16, 32)
    ]
    errors = np.array(reached) - [0.96, 0.91, 0.92, 0.79, 0.72]
    assert np.abs(errors).mean() < 0.04


PUBLISHED_EXCHANGES = (
    (16, 50, 67108864, 750.95),
    (16, 50, 268435456, 2884.99),
    (32, 50, 67108864, 1441.5),
    (64, 50, 67108864, 1635.16),
    (32, 100, 58720256, 605.16),
    (64, 100, 58720256, 781.12),
    (128, 100, 58720256, 789.45),
    (256, 100, 58720256, 1069.3),
)
"""Ranks, GB/s of a rank's card, bytes, µs of an all-to-all on nodes of 8: Vultr's guide to MI355X (RCCL 2.27.7), then
RESULTS-p5.md and RESULTS.md of awsome-distributed-ai's ep-backend-comparison (p5, 2026-06; p6-b300, 2026-07)."""


@pytest.mark.parametrize(("ranks", "card", "size", "microseconds"), PUBLISHED_EXCHANGES)
def test_exchanges_across_nodes_take_what_was_measured(ranks, card, size, microseconds):
    form = replace(FORMS["h100-sxm-80gb"], nic_bytes_per_s=card * 1e9)
    predicted = float(form.collective("all-to-all", size, ranks, 8)) / 1e-6
    assert predicted == pytest.approx(microseconds, rel=0.25)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_a_ring_moves_the_wire_factor_times_what_the_others_hold(ranks):
    """A ring all-reduce, played: every rank sends its chunks round twice, and all end with the sum."""
    rng = np.random.default_rng(ranks)
    values = rng.integers(0, 100, (ranks, ranks))
    expected, sent = values.sum(0), np.zeros(ranks)
    for offset, combine in ((0, np.add), (1, lambda old, new: new)):
        for step in range(ranks - 1):
            chunks = [(rank + offset - step) % ranks for rank in range(ranks)]
            moving = [values[rank, chunk] for rank, chunk in enumerate(chunks)]
            for rank, chunk in enumerate(chunks):
                target = (rank + 1) % ranks
                values[target, chunk] = combine(values[target, chunk], moving[rank])
                sent[rank] += 1 / ranks
        if offset == 0:
            assert sent == pytest.approx(WIRE_FACTOR["reduce-scatter"] * (ranks - 1) / ranks)
    assert (values == expected).all()
    assert sent == pytest.approx(WIRE_FACTOR["all-reduce"] * (ranks - 1) / ranks)
    assert WIRE_FACTOR["all-gather"] + WIRE_FACTOR["reduce-scatter"] == WIRE_FACTOR["all-reduce"]


@laws
@given(forms, st.floats(0, 1e10), st.floats(1, 1e9))
def test_a_message_is_never_faster_across_domains_and_grows_with_its_bytes(form, size, more):
    inside, across = form.p2p(size, False), form.p2p(size, True)
    assert 0 < inside <= across
    assert form.p2p(size + more, True) > across


@pytest.mark.parametrize(
    ("cluster", "domain"),
    [
        ("h100-sxm-80gb x 4", 4),
        ("h100-sxm-80gb x 8", 8),
        ("h100-sxm-80gb x 64", 8),
        ("gb200 x 64", 64),
        ("gb200 x 72", 72),
        ("gb200 x 144", 72),
        ("gb200 x 256", 64),
    ],
)
def test_a_job_uses_as_much_of_a_fast_domain_as_fills_its_domains_evenly(cluster, domain):
    pool = load_cluster(cluster).pool
    assert hardware_times_for(pool, "bf16").domain == domain
    assert pool.count % domain == 0
