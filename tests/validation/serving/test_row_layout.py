"""Workers by the columns of degrees."""

import pytest

from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.validation.serving.disaggregated_workers import disaggregated
from meshwright.validation.serving.row_layout import Degrees, worker_layouts
from meshwright.validation.serving.serving_row import Workers

DENSE, EXPERTS = "llama-3.1-8b", "mixtral-8x7b"


def served(model, devices, pools=None, device="h100-sxm-80gb", **degrees):
    given = Degrees(**{name: degrees.get(name) for name in ("tp", "pp", "dp", "ep")})
    text = None if pools is None else disaggregated(pools)
    return worker_layouts(model, device, devices, given, text)


def one(model, devices, **degrees):
    (workers,) = served(model, devices, **degrees).workers
    return workers.replicas, workers.layout


def test_dp_of_a_dense_model_counts_replicas():
    assert one(DENSE, 8, tp=2, dp=4) == (4, ReplicaLayout(tp=2))
    assert one(DENSE, 8, tp=2, pp=2, dp=2, ep=8) == (2, ReplicaLayout(tp=2, pp=2))


def test_dp_with_spread_experts_replicates_attention():
    assert one(EXPERTS, 8, tp=2, dp=4, ep=8) == (1, ReplicaLayout(attention_dp=4, tp=2, ep=8))
    assert one(EXPERTS, 8, tp=2, dp=4, ep=4) == (1, ReplicaLayout(attention_dp=4, tp=2, ep=4, etp=2))


def test_dp_without_spread_experts_counts_replicas():
    assert one(EXPERTS, 8, tp=2, dp=4) == (4, ReplicaLayout(tp=2, etp=2))
    assert one(EXPERTS, 8, tp=2, dp=4, ep=1) == (4, ReplicaLayout(tp=2, etp=2))


def test_further_devices_are_further_replicas():
    assert one(DENSE, 8, tp=4) == (2, ReplicaLayout(tp=4))
    assert one(EXPERTS, 16, tp=1, dp=8, ep=8) == (2, ReplicaLayout(attention_dp=8, ep=8))


def test_an_absent_tp_fills_the_devices():
    found = served(EXPERTS, 4, dp=4, ep=4)
    assert found.workers[0].layout == ReplicaLayout(attention_dp=4, ep=4)
    assert served(DENSE, 8).workers[0].layout == ReplicaLayout(tp=8)
    assert "gpus/(pp·dp) = 1" in found.remarks[0]


def test_two_ranks_of_a_chip_are_one_device():
    found = served(DENSE, 4, device="tpu-7x", tp=8)
    assert found.workers[0].layout == ReplicaLayout(tp=4)
    with pytest.raises(ValueError, match="multiple"):
        served(DENSE, 4, tp=8)


@pytest.mark.parametrize(
    ("devices", "degrees", "reason"),
    [
        (None, {}, "gpus, tp: not given"),
        (6, {"tp": 4}, "gpus = 6 must be a multiple of tp·pp·dp = 4"),
        (6, {"dp": 4, "ep": 4}, "gpus = 6 must be a multiple of pp·dp = 4"),
        (8, {"tp": 8, "ep": 3}, "ep = 3 must divide tp·attention_dp = 8"),
    ],
)
def test_contradictions_are_refused(devices, degrees, reason):
    with pytest.raises(ValueError, match=reason):
        served(EXPERTS, devices, **degrees)


def test_pools_with_all_numbers():
    text = "2 workers x tp2 pp1 adp1 moetp2 ep1 bs1|1 workers x tp1 pp1 adp4 moetp1 ep4 bs64"
    assert served(EXPERTS, 8, text).workers == (
        Workers(does="prefill", replicas=2, layout=ReplicaLayout(tp=2, etp=2), batch=1),
        Workers(does="decode", replicas=1, layout=ReplicaLayout(attention_dp=4, ep=4), batch=64),
    )


def test_the_devices_beyond_one_prefill_worker_decode():
    text = " workers x tp4 pp1 adp1 moetp4 ep1 bs| workers x tp2 pp1 adp1 moetp2 ep1 bs"
    prefill, decode = served(EXPERTS, 12, text).workers
    assert (prefill.replicas, decode.replicas) == (1, 4)


def test_absent_devices_are_those_of_the_workers():
    found = served(EXPERTS, None, "1 prefill worker|1 decode worker x TP2")
    assert [one.devices for one in found.workers] == [1, 2]
    assert "the workers, 3" in found.remarks[0]


@pytest.mark.parametrize(
    ("devices", "text", "reason"),
    [
        (9, " workers x tp4| workers x tp2", "= 5 must be a multiple of a decode worker's 2"),
        (4, " workers x tp4| workers x tp2", "= 0 must be a multiple"),
        (None, "1 workers x tp4| workers x tp2", "the number of decode workers is not given"),
        (9, "1 workers x tp4|2 workers x tp2", "gpus = 9 must be the devices of the workers, 8"),
        (8, "1 workers x tp4 moetp4 ep4|2 workers x tp2", "ep·moetp = 16 must be tp·attention_dp = 4"),
    ],
)
def test_contradicting_pools_are_refused(devices, text, reason):
    with pytest.raises(ValueError, match=reason):
        served(EXPERTS, devices, text)


def test_degrees_of_experts_do_not_matter_to_a_dense_model():
    text = "1 workers x tp1 moetp1 ep1|1 workers x tp4 pp1 adp1 moetp1 ep1 bs92"
    assert served(DENSE, 5, text).workers[1].layout == ReplicaLayout(tp=4)


UNCOUNTED = " workers x tp8 pp1 adp1 moetp1 ep8 bs| workers x tp32 pp1 adp1 moetp4 ep8 bs"


def test_uncounted_workers_with_latent_attention_replicate_it():
    found = served("deepseek-v3", 40, UNCOUNTED)
    prefill, decode = found.workers
    assert prefill.layout == ReplicaLayout(attention_dp=8, ep=8)
    assert decode.layout == ReplicaLayout(attention_dp=32, ep=32)
    assert (prefill.counted, decode.counted) == (False, True)
    assert "as many that prefill" in found.remarks[0]


def test_counted_workers_and_other_attention_keep_their_tp():
    counted = served(
        "deepseek-v3", 16, "1 workers x tp8 pp1 adp1 moetp1 ep8 bs|1 workers x tp8 pp1 adp1 moetp8 ep1 bs"
    )
    assert [one.layout.tp for one in counted.workers] == [8, 8]
    grouped = served(
        EXPERTS, 4, " workers x tp2 pp1 adp1 moetp1 ep2 bs| workers x tp2 pp1 adp1 moetp1 ep2 bs"
    )
    assert [one.layout.tp for one in grouped.workers] == [2, 2]


def test_tp_alone_stays_tp_where_it_divides_heads_and_blocks_of_experts():
    plain = served(
        "deepseek-v3", 16, " workers x tp8 pp1 adp1 moetp8 ep1 bs| workers x tp8 pp1 adp1 moetp8 ep1 bs"
    )
    assert plain.workers[0].layout == ReplicaLayout(tp=8, etp=8)
    wide = served(
        "deepseek-v3", 96, " workers x tp48 pp1 adp1 moetp48 ep1 bs| workers x tp48 pp1 adp1 moetp48 ep1 bs"
    )
    assert wide.workers[0].layout == ReplicaLayout(attention_dp=48, ep=48)


def test_workers_without_degrees_and_devices_share_a_node():
    found = served("gpt-oss-120b", None, "1 prefill worker|1 decode worker", device="h200-sxm-141gb")
    assert [one.layout.tp for one in found.workers] == [4, 4]
    assert "share a node of 8 devices" in found.remarks[0]
    named = served(
        "gpt-oss-120b", None, "1 prefill worker x TP2|3 decode workers x TP2", device="h200-sxm-141gb"
    )
    assert [one.layout.tp for one in named.workers] == [2, 2]
