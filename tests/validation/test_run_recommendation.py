"""Measured runs in the order in which their plans would be recommended."""

import numpy as np
from example_run_tables import row, write

from meshwright.cost.uncertainty.regret import CLOSE
from meshwright.validation import run_recommendation
from meshwright.validation.error_summary import summarise
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import read_runs
from meshwright.validation.run_recommendation import recommended_rows
from meshwright.validation.validate_runs import validate_runs

PLANS = (
    {"tp": 1, "pp": 1, "dp": 8},
    {"tp": 2, "pp": 1, "dp": 4},
    {"tp": 2, "pp": 2, "dp": 2},
    {"tp": 4, "pp": 1, "dp": 2, "sequence_parallel": "false"},
    {"tp": 1, "pp": 4, "dp": 2},
)


def predictions(table, *plans):
    write(table, [row(run_id=f"r{i}", model="a", step_time_s=1 + i, **plan) for i, plan in enumerate(plans)])
    runs = list(read_runs(table))
    return runs, predict_runs(runs)


def test_every_row_is_in_the_order_once(table):
    runs, predicted = predictions(table, *PLANS)
    rows = np.array([4, 0, 2, 3])
    assert sorted(recommended_rows(runs, predicted, rows)) == [0, 2, 3, 4]


def test_without_errors_the_simplest_of_the_fastest_is_recommended(table, monkeypatch):
    runs, predicted = predictions(table, *PLANS)
    monkeypatch.setattr(run_recommendation, "log_errors", lambda plans, setting: np.zeros((4, len(plans))))
    monkeypatch.setattr(run_recommendation, "departures", lambda plans, setting: np.zeros(len(plans)))
    losses = predicted.step_s / predicted.step_s.min() - 1
    axes = [sum(degree > 1 for degree in (plan["tp"], plan["pp"], plan["dp"])) for plan in PLANS]
    close = np.flatnonzero(losses <= CLOSE)
    fewest = min(axes[row] for row in close)
    order = recommended_rows(runs, predicted, np.arange(len(PLANS)))
    assert order[0] in close
    assert axes[order[0]] == fewest


def test_picks_follow_the_recommendation(table):
    runs, predicted = predictions(table, *PLANS)
    order = recommended_rows(runs, predicted, np.arange(len(PLANS)))
    ranking = validate_runs(table).summary["all"]["ranking"]
    measured = np.array([run.step_time_s for run in runs])
    assert ranking["regret_mean"] == measured[order[0]] / measured.min() - 1
    assert ranking["best_of_3_regret_mean"] == measured[order[:3]].min() / measured.min() - 1
    by_time = summarise(runs, predicted, {"s": len(runs)})["all"]["ranking"]
    assert by_time["spearman_median"] == ranking["spearman_median"]
    assert by_time["regret_mean"] == measured[predicted.step_s.argmin()] / measured.min() - 1
