"""Measured runs in the order in which their plans would be recommended."""

import numpy as np
from example_run_tables import row, write

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


def test_of_equal_plans_but_for_their_axes_the_simpler_one_is_recommended(table):
    runs, predicted = predictions(table, *PLANS)
    order = recommended_rows(runs, predicted, np.arange(len(PLANS)))
    first = runs[order[0]].chosen
    times = predicted.step_s
    close = np.flatnonzero(times <= times.min() * 1.001)
    assert predicted.step_s[order[0]] <= 1.1 * times.min()
    assert order[0] in close or first.tp * first.pp == 1


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
