"""Predicting many runs at once equals predicting each of them alone."""

import numpy as np
import pytest
from example_run_tables import random_rows, read, row, write
from test_run_plan import short_plan

from meshwright.cost.plan_report import closed_form
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import read_runs
from meshwright.validation.run_plan import run_plan
from meshwright.validation.run_setting import setting_of


def test_together_equals_alone(table):
    write(table, random_rows(300, seed=11))
    runs = list(read_runs(table))
    predicted = predict_runs(runs)
    made = np.flatnonzero(predicted.made)
    assert 30 <= len(made) < len(runs)
    for number in made:
        setting = setting_of(runs[number].given)
        plan = run_plan(runs[number].chosen, setting.cluster.devices)
        alone = closed_form(short_plan(plan, setting), setting)
        assert predicted.step_s[number] == pytest.approx(sum(alone.parts.values()), rel=1e-9)
        assert predicted.memory_bytes[number] == pytest.approx(max(sum(x.values()) for x in alone.ledgers))


def test_every_run_has_a_prediction_or_a_reason(table):
    write(table, random_rows(150, seed=12))
    predicted = predict_runs(list(read_runs(table)))
    assert set(np.flatnonzero(~predicted.made)) == set(predicted.reasons)
    assert all(predicted.reasons.values())


def test_the_ideal_step_is_the_numerator_of_mfu(table):
    (run,) = read(table, row(tied_embeddings="false"))
    model = setting_of(run.given).model
    per_token = 6 * (model.parameters_active - model.parameters_embedding) + 12 * 8 * 1024 * 1024
    expected = per_token * 1024 * 32 / (312e12 * 8)
    assert predict_runs([run]).ideal_s[0] == pytest.approx(expected)


def test_no_runs_no_predictions():
    assert len(predict_runs([]).step_s) == 0


def test_rows_of_equal_settings_have_equal_predictions(table):
    rows = list(random_rows(200, seed=13))
    write(table, (rows[i % 200] | {"run_id": str(i)} for i in range(1000)))
    predicted = predict_runs(list(read_runs(table)))
    assert predicted.made.any()
    np.testing.assert_array_equal(predicted.made, np.tile(predicted.made[:200], 5))
    np.testing.assert_array_equal(predicted.step_s, np.tile(predicted.step_s[:200], 5))
