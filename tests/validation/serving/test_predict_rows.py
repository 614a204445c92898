"""Predictions of rows: what they depend on, what has none, and that alike rows are predicted as alone."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_table_rows import WITH_EXPERTS, read, row

from meshwright.validation.serving.predict_rows import predict_rows
from meshwright.validation.serving.predict_serving import predict_serving

UNREAD = {
    "id": st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=8),
    "source": st.sampled_from(["", "s", "paper"]),
    "ttft_ms": st.sampled_from(["", "1", "99999", "nonsense"]),
    "tpot_ms": st.sampled_from(["", "0.5", "700", "-3"]),
    "throughput_tok_s": st.sampled_from(["", "12", "1e6"]),
    "per_gpu_tok_s": st.sampled_from(["", "7"]),
    "throughput_kind": st.sampled_from(["", "output", "total"]),
}
TWO_POOLS = {"disagg": "1 workers x tp2 pp1 adp1 bs1|2 workers x tp2 pp1 adp1 bs8", "tp": "", "gpus": "6"}


@pytest.fixture
def table(tmp_path):
    return tmp_path / "serving.csv"


def inputs(table, *rows):
    return [one.inputs for one in read(table, *rows)]


@given(st.fixed_dictionaries(UNREAD))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8, deadline=None)
def test_nothing_measured_and_no_identity_moves_a_prediction(table, changes):
    for kind in ({}, WITH_EXPERTS, TWO_POOLS):
        assert predict_serving(inputs(table, row(**kind))) == predict_serving(
            inputs(table, row(**kind, **changes))
        )


def test_runs_are_predicted_together_as_alone(table):
    rows = [
        row(),
        row(isl=100, concurrency=1),
        row(tp=1, gpus=1, concurrency="", request_rate="inf"),
        row(concurrency="", request_rate=0.5),
        row(osl=1),
        row(**WITH_EXPERTS),
        row(**TWO_POOLS),
        row(engine="sglang"),
        row(model="llama-3.1-70b", tp=8, gpus=8),
    ]
    runs = inputs(table, *rows)
    together = predict_rows(runs)
    assert not any(together.reasons)
    for place, run in enumerate(runs):
        alone = predict_rows([run])
        for name in ("ttft_s", "tpot_s", "throughput"):
            assert getattr(together, name)[place] == pytest.approx(
                getattr(alone, name)[0], rel=1e-6, nan_ok=True
            )


def test_throughput_is_of_a_device_in_output_tokens(table):
    one, two = inputs(table, row(gpus=2, tp=2), row(gpus=4, tp=2, concurrency=32))
    found = predict_rows([one, two])
    assert found.throughput[0] == pytest.approx(found.throughput[1])
    little = 16 / (found.ttft_s[0] + 499 * found.tpot_s[0]) * 500 / 2
    assert found.throughput[0] == pytest.approx(little, rel=1e-6)


def test_one_output_token_has_no_time_of_a_further_one(table):
    (one,) = predict_serving(inputs(table, row(osl=1)))
    assert one.tpot_s is None
    assert one.ttft_s.low < one.ttft_s.value < one.ttft_s.high


def test_above_capacity_there_is_no_first_token(table):
    (one,) = predict_serving(inputs(table, row(concurrency="", request_rate=1e6)))
    assert one.ttft_s is None
    assert one.output_tokens_per_s_per_device is not None


def test_an_engine_of_another_name_has_a_wider_interval(table):
    known, other = predict_serving(inputs(table, row(), row(engine="ServeFast 3")))
    assert other.tpot_s.high / other.tpot_s.low > known.tpot_s.high / known.tpot_s.low


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tp": "3", "gpus": "3"}, "heads % tp"),
        ({"tp": "1", "pp": "64", "gpus": "64"}, "pp > 32 layers"),
        ({"model": "qwen2.5-vl-7b"}, "encoder"),
        (
            {"model": "llama-3.1-405b", "weight_precision": "bf16", "tp": "1", "gpus": "1"},
            "no sequence has room",
        ),
    ],
)
def test_what_cannot_be_predicted_has_a_reason(table, changes, reason):
    good, wrong = predict_serving(inputs(table, row(), row(**changes)))
    assert not isinstance(good, str)
    assert reason in wrong


def test_prefill_whose_workers_are_not_counted_is_no_bottleneck(table):
    sides = " workers x tp1 pp1 adp1 moetp1 ep1 bs| workers x tp1 pp1 adp1 moetp1 ep1 bs"
    load = {"tp": "", "gpus": "2", "isl": "8000", "osl": "20", "concurrency": "64"}
    free, counted = inputs(
        table, row(disagg=sides, **load), row(disagg=sides.replace(" workers", "1 workers"), **load)
    )
    assert not free.workers[0].counted
    assert counted.workers[0].counted
    found = predict_rows([free, counted])
    assert found.ttft_s[0] < found.ttft_s[1]
    assert found.throughput[0] > found.throughput[1]
    assert np.isfinite(found.tpot_s).all()
