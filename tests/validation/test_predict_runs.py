"""Predicting many runs at once equals predicting each of them alone."""

import time

import numpy as np
import pytest
from example_run_tables import random_rows, read, row, write
from test_run_plan import short_plan

from meshwright.cost.plan_report import closed_form
from meshwright.validation.predict_runs import predict_runs
from meshwright.validation.read_run_table import read_runs
from meshwright.validation.run_plan import run_plan
from meshwright.validation.run_setting import setting_of
from meshwright.validation.validate_runs import validate_runs

MILLION_CPU_S = 60


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


@pytest.mark.slow
def test_a_million_rows_of_few_settings_are_quick(table):
    count = 50_000
    rows = list(random_rows(500, seed=13))
    write(table, (rows[i % 500] | {"run_id": str(i)} for i in range(count)))
    validate_runs(write(table.with_name("warm.csv"), rows))
    began = time.process_time()
    found = validate_runs(table)
    for _ in found.rows():
        pass
    assert (time.process_time() - began) * 1e6 / count <= MILLION_CPU_S
