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
