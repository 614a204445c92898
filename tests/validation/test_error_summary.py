"""The summary against a small table that is worked out by hand."""

import csv
from importlib.resources import files

import numpy as np
import pytest
from example_run_tables import read, row

from meshwright.cluster.catalog import device_ids
from meshwright.units import GIB
from meshwright.validation.error_summary import blind_mfu, summarise
from meshwright.validation.predict_runs import Predictions

MEASURED = (1.0, 2.0, 3.0, 4.0)
PREDICTED = (1.1, 1.8, 4.5, 4.0)


def predictions(step_s, memory_gib, fits, ideal_s):
    return Predictions(
        step_s=np.array(step_s),
        low_s=np.array(step_s) * 0.8,
        high_s=np.array(step_s) * 1.2,
        memory_bytes=np.array(memory_gib) * GIB,
        fits=np.array(fits),
        ideal_s=np.array(ideal_s),
        reasons={},
    )


@pytest.fixture
def summary(table):
    """Four runs of one group of source a, one out-of-memory run of it, one run of b, one skipped of each."""
    runs = read(
        table,
        *(
            row(source="a", micro_batch=1 + i, step_time_s=t, peak_memory_gib="")
            for i, t in enumerate(MEASURED)
        ),
        row(source="a", micro_batch=16, outcome="oom"),
        row(source="b", step_time_s=2, peak_memory_gib=10),
        row(source="b", step_time_s=""),
    )
    predicted = predictions(
        [*PREDICTED, 9.0, 3.0, np.nan],
        [20, 20, 20, 20, 200, 12, np.nan],
        [True, True, True, False, True, True, False],
        [0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4],
    )
    return summarise(runs, predicted, {"a": 6, "b": 2})


def test_coverage_counts_every_line(summary):
    assert [summary[name]["coverage"] for name in ("a", "b", "all")] == [5 / 6, 1 / 2, 6 / 8]
    assert list(summary) == ["a", "b", "all"]


def test_errors_of_a_source(summary):
    found = summary["a"]["step_time"]
    assert found["n"] == 4
    assert found["mape"] == pytest.approx((0.1 + 0.1 + 0.5 + 0) / 4)
    assert found["median_ape"] == pytest.approx(0.1)
    assert found["p90_ape"] == pytest.approx(0.1 + 0.7 * 0.4)
    assert found["bias"] == pytest.approx((1.1 * 0.9 * 1.5) ** 0.25 - 1)
    assert found["interval_coverage"] == 0.75


def test_the_fitted_baseline(summary):
    # measured utilisations 0.4, 0.2, 0.13, 0.1; U = 0.4 has errors 0, 1/2, 2/3, 3/4; U = 0.2: 1, 0, 1/3, 1/2
    assert summary["a"]["step_time"]["own_mfu_mape"] == pytest.approx((1 + 0 + 1 / 3 + 1 / 2) / 4)
    assert summary["b"]["step_time"]["own_mfu_mape"] == pytest.approx(0)


def test_the_blind_baseline(summary):
    constant = 0.4 / blind_mfu()["a100-sxm-80gb", "bf16"]
    expected = sum(abs(constant / t - 1) for t in MEASURED) / 4
    assert summary["a"]["step_time"]["blind_mfu_mape"] == pytest.approx(expected)


def test_ranking_of_the_one_group(summary):
    expected = {
        "groups": 1,
        "spearman_median": pytest.approx(0.8),  # predicted ranks 1 2 4 3
        "pairs": 6,
        "pairs_right": pytest.approx(5 / 6),
        "regret_mean": 0,
        "regret_max": 0,
        "best_of_3_regret_mean": 0,
    }
    assert summary["a"]["ranking"] == summary["all"]["ranking"] == expected
    assert summary["b"]["ranking"]["groups"] == 0
    assert summary["b"]["ranking"]["spearman_median"] is None


def test_memory_and_fits(summary):
    assert summary["a"]["memory"] == {"n": 0, "mape": None, "bias": None}
    assert summary["b"]["memory"] == {"n": 1, "mape": pytest.approx(0.2), "bias": pytest.approx(0.2)}
    fits = {"n": 5, "accuracy": pytest.approx(3 / 5), "oom_called_fit": 1, "fit_called_oom": 1 / 4}
    assert summary["a"]["fits"] == fits
    assert summary["b"]["fits"] == {"n": 1, "accuracy": 1, "oom_called_fit": None, "fit_called_oom": 0}


def test_all_is_over_rows_not_over_sources(summary):
    mapes = [summary[name]["step_time"]["mape"] for name in ("a", "b")]
    assert summary["all"]["step_time"]["mape"] == pytest.approx((4 * mapes[0] + mapes[1]) / 5)


def test_groups_need_four_timed_rows_of_one_source(table):
    rows = [row(source=s, micro_batch=m, step_time_s=m) for s in "ab" for m in (1, 2, 4)]
    runs = read(table, *rows)
    predicted = predictions([1.0] * 6, [1.0] * 6, [True] * 6, [0.1] * 6)
    assert summarise(runs, predicted, {"a": 3, "b": 3})["all"]["ranking"]["groups"] == 0


def test_intervals_are_counted(table):
    runs = read(table, *(row(step_time_s=t) for t in MEASURED))
    one = predictions(PREDICTED, [1.0] * 4, [True] * 4, [0.1] * 4)
    both = Predictions(**{**vars(one), "low_s": np.array([0.9, 1.9, 3.5, 4.1]), "high_s": np.full(4, 5.0)})
    assert summarise(runs, both, {"s": 4})["s"]["step_time"]["interval_coverage"] == 0.5


def test_nothing_read_is_nothing_summed():
    empty = summarise([], predictions([], [], np.array([], dtype=bool), []), {})
    assert list(empty) == ["all"]
    assert empty["all"]["coverage"] is None
    assert empty["all"]["step_time"]["mape"] is None


def test_the_blind_medians_have_an_origin():
    text = files("meshwright.validation").joinpath("data", "blind_mfu.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert {r["device"] for r in rows} <= set(device_ids())
    assert all(0 < float(r["mfu"]) < 1 and int(r["runs"]) > 0 and r["origin"] for r in rows)
    assert len({(r["device"], r["precision"]) for r in rows}) == len(rows) == len(blind_mfu())
