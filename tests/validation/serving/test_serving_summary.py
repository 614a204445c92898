"""Coverage and errors of serving runs, against a table that is worked out by hand."""

import pytest
from serving_table_rows import row, write

from meshwright.validation.serving.serving_prediction import Interval, ServingPrediction
from meshwright.validation.serving.validate_serving import validate_serving

ERRORS = ("mape", "median_ape", "bias", "p90_ape", "interval_coverage")


def constant(inputs):
    """0.2 s to the first token, 0.02 s per further one, and 1000 tokens/s of a device; 8 requests have no TTFT."""
    ttft = None if inputs.concurrency == 8 else Interval(0.2, 0.1, 0.4)
    return ServingPrediction(
        ttft_s=ttft,
        tpot_s=Interval(0.02, 0.016, 0.03),
        output_tokens_per_s_per_device=Interval(1000, 900, 1100),
    )


def all_constant(runs):
    return [constant(inputs) for inputs in runs]


@pytest.fixture
def table(tmp_path):
    return tmp_path / "serving.csv"


@pytest.fixture
def validation(table):
    rows = [
        row(id="a", source="x", ttft_ms=100, tpot_ms=20, throughput_tok_s=2000),
        row(id="b", source="x", ttft_ms=400, tpot_ms=25, throughput_tok_s=""),
        row(id="c", source="y", ttft_ms="", tpot_ms=40, gpus=4, throughput_tok_s=8000),
        row(id="d", source="y", model="Llama 9"),
        row(id="e", source="y", concurrency=""),
        row(id="f", source="y", ttft_ms=50, tpot_ms="", throughput_tok_s="", concurrency=8),
    ]
    return validate_serving(write(table, rows), all_constant)


def test_coverage_is_of_complete_rows(validation):
    assert validation.summary["x"]["coverage"] == 1
    assert validation.summary["y"]["coverage"] == pytest.approx(2 / 3)
    assert validation.summary["all"]["coverage"] == pytest.approx(4 / 5)


def test_errors_by_hand(validation):
    ttft, tpot, throughput = (validation.summary["all"][name] for name in ("ttft", "tpot", "throughput"))
    assert ttft["n"] == 2
    assert ttft["mape"] == pytest.approx((1.0 + 0.5) / 2)
    assert ttft["bias"] == pytest.approx(0.0)
    assert ttft["interval_coverage"] == 1
    assert tpot["n"] == 3
    assert tpot["median_ape"] == pytest.approx(0.2)
    assert tpot["interval_coverage"] == pytest.approx(2 / 3)
    assert throughput["n"] == 2
    assert throughput["mape"] == pytest.approx((0 + 0.5) / 2)
    assert throughput["interval_coverage"] == 0.5


def test_figures_without_values_are_null(validation):
    assert validation.summary["y"]["ttft"] == {"n": 0} | dict.fromkeys(ERRORS)


def test_the_public_form(validation):
    shown = validation.to_json()
    assert shown["rows"][0] == {
        "id": "a",
        "predicted_ttft_s": 0.2,
        "ttft_low_s": 0.1,
        "ttft_high_s": 0.4,
        "predicted_tpot_s": 0.02,
        "tpot_low_s": 0.016,
        "tpot_high_s": 0.03,
        "predicted_output_tokens_per_s_per_device": 1000,
        "throughput_low": 900,
        "throughput_high": 1100,
    }
    assert shown["rows"][-1]["id"] == "f"
    assert shown["rows"][-1]["predicted_ttft_s"] is shown["rows"][-1]["ttft_low_s"] is None
    assert [one["id"] for one in shown["skipped"]] == ["d", "e"]
    assert all(one["reason"] for one in shown["skipped"])


def test_runs_without_a_prediction_are_skipped_with_the_reason(table):
    def picky(runs):
        return ["too few" if inputs.concurrency == 1 else constant(inputs) for inputs in runs]

    shown = validate_serving(write(table, [row(id="a", concurrency=1), row(id="b")]), picky)
    assert [(one.id, one.reason, one.complete) for one in shown.skipped] == [
        ("a", "too few", True),
    ]
    assert shown.summary["all"]["coverage"] == 0.5


def test_equal_inputs_are_predicted_once(table):
    seen = []

    def counting(runs):
        seen.extend(runs)
        return all_constant(runs)

    rows = [row(id="a", ttft_ms=1), row(id="b", source="z", notes="n"), row(id="c", isl=7)]
    shown = validate_serving(write(table, rows), counting)
    assert len(shown.runs) == 3
    assert len(seen) == 2
