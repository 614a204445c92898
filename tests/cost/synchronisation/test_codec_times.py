"""Seconds of codecs: passes over memory against the device's rate, products, and what each transport repeats."""

import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.price_plans import setting_hardware_times
from meshwright.cost.synchronisation.codec_times import (
    PASSES,
    PRODUCT_SLOWDOWN,
    exchange_codec_seconds,
    gather_codec_seconds,
    row_seconds,
    scatter_codec_seconds,
    update_seconds,
)
from meshwright.model.load import load_model
from meshwright.plans.setting import Setting
from meshwright.plans.synchronisation.compression import CODECS, Compression
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

SIDE = 4096
MATRIX = (Stretch("layers.0.weight", SIDE * SIDE, (1, SIDE, SIDE), 0),)
OPTIONS = {
    "quantise": {"quantise": "int8"},
    "ternary": {"ternary": {}},
    "low_rank": {"low_rank": 4},
    "dct": {"dct": {"chunk": 64, "keep": 8}},
    "select": {"select": {"keep": 0.1}},
    "top_k": {"top_k": 0.01},
    "random_k": {"random_k": 0.01},
    "sketch": {"sketch": {"width": 0.1}},
}


def forms_of(cluster):
    setting = Setting(
        load_model("gpt2"),
        load_cluster(cluster),
        Workload(seq_len=1024, global_batch=8),
        load_stack("meshwright"),
    )
    return setting_hardware_times(setting)


@pytest.fixture(scope="module")
def forms():
    return forms_of("a100-sxm-40gb x 8")


def seconds(options, forms, stretches=MATRIX, ranks=8):
    return exchange_codec_seconds(Compression.model_validate(options), stretches, ranks, forms)


def test_every_codec_between_passes_has_passes():
    assert {*PASSES} == {*CODECS} - {"lsh"} == {*OPTIONS}


@pytest.mark.parametrize("codec", OPTIONS)
def test_seconds_follow_memory_bandwidth_and_elements(codec, forms):
    found = seconds(OPTIONS[codec], forms)
    once = 4 * SIDE**2 / forms.memory_bytes_per_s
    assert 2 * once < found < 1000 * once
    twice = tuple(Stretch(f"layers.{n}.weight", SIDE * SIDE, (1, SIDE, SIDE), n) for n in range(2))
    assert seconds(OPTIONS[codec], forms, twice) == pytest.approx(2 * found)
    assert seconds(OPTIONS[codec], forms_of("h100-sxm-80gb x 8")) < found
    assert seconds(OPTIONS[codec] | {"layers": "5..6"}, forms) == 0


def test_no_codec_takes_no_time(forms):
    assert exchange_codec_seconds(None, MATRIX, 8, forms) == 0
    assert seconds({"cast": "bf16"}, forms) == 0


@pytest.mark.parametrize(
    ("codec", "grows"),
    [("quantise", False), ("low_rank", False), ("sketch", False), ("ternary", True), ("top_k", True)],
)
def test_only_gathered_messages_are_decoded_once_for_each_rank(codec, grows, forms):
    few, many = (seconds(OPTIONS[codec], forms, ranks=ranks) for ranks in (8, 64))
    assert (many > few) == grows


def test_error_feedback_adds_passes_but_not_to_momenta(forms):
    plain, fed = (seconds({"quantise": "int8", "error_feedback": on}, forms) for on in (False, True))
    assert fed - plain == pytest.approx(float(forms.pass_(16 * SIDE**2, "optimizer_efficiency")))


def test_low_rank_has_three_products_and_a_factorisation(forms):
    """Beyond its passes: 6·r FLOPs an element and 4·rows·r², in fp32, and launches of products and columns."""
    rate = forms.kernels.gemm_efficiency * forms.peak_16bit_flops / PRODUCT_SLOWDOWN
    found = [seconds({"low_rank": rank}, forms) for rank in (4, 8)]
    more = (6 * 4 * SIDE**2 + 4 * SIDE * (64 - 16)) / rate + 2 * 4 * forms.kernels.gemm_launch_s
    assert found[1] - found[0] == pytest.approx(more)


def test_gathers_encode_a_shard_and_reductions_all_of_them(forms):
    said = Compression.model_validate({"quantise": "int8"})
    gathered = gather_codec_seconds(said, MATRIX, 8, forms)
    scattered = scatter_codec_seconds(said, MATRIX, forms)
    assert gathered < scattered < exchange_codec_seconds(said, MATRIX, 8, forms)
    assert scattered - gathered == pytest.approx(scattered / 2 * 7 / 8)


def entry(**keys):
    return Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", "every": 8, **keys})


def test_outer_steps_move_more_with_more_moments(forms):
    outers = [{}, {"outer": {"nesterov": {"lr": 1}}}, {"outer": {"adam": {"lr": 1}}}]
    found = [update_seconds(entry(**outer), "parameter", SIDE**2, forms) for outer in outers]
    assert found == sorted(set(found))
    assert update_seconds(entry(), "first_moment", SIDE**2, forms) < found[0]


def test_an_anchor_on_the_host_is_copied(forms):
    on_host = update_seconds(entry(keep="host"), "parameter", SIDE**2, forms)
    assert on_host > 3 * 4 * SIDE**2 / forms.host_bytes_per_s
    assert on_host > 5 * update_seconds(entry(), "parameter", SIDE**2, forms)


def combination(combine, compress=None):
    keys = {"state": "gradient", "over": "dp_replicate", "combine": combine, "compress": compress}
    return Synchronisation.model_validate(keys)


def test_rules_read_all_rows_and_decode_all_messages(forms):
    median, krum = (row_seconds(combination(rule), MATRIX, 8, forms) for rule in ("median", {"krum": 1}))
    assert krum > 17 / 9 * median
    assert row_seconds(combination("median"), MATRIX, 17, forms) == pytest.approx(2 * median)
    int8 = [row_seconds(combination("median", {"quantise": "int8"}), MATRIX, n, forms) for n in (2, 3)]
    plain = [row_seconds(combination("median"), MATRIX, n, forms) for n in (2, 3)]
    assert int8[1] - plain[1] > int8[0] - plain[0] > 0
