"""Seeded joint draws of constants, and the tables that hold what fits found."""

import csv

import numpy as np
import pytest

from meshwright.calibration.draws import DRAWS, seeded_draws, write_draws
from meshwright.calibration.fitted_constants import FitTables, FittedConstants
from meshwright.calibration.fitted_parameters import Prior, priors
from meshwright.cost.uncertainty.constant_draws import constant_draws

VALUES = {"hbm_efficiency": 0.6, "a100:gemm_efficiency": 0.7, "llm-foundry/elementwise_factor": 1.2}
FACTOR = np.array([[0.1, 0.0, 0.0], [-0.05, 0.02, 0.0], [0.1, 0.1, 0.2]])
PRIORS = {"*/host_s_per_layer": Prior(3e-4, 1.0), "hbm_efficiency": Prior(0.8, 0.15)}


def test_draws_have_exactly_the_covariance_of_the_fit():
    drawn = seeded_draws(VALUES, FACTOR, PRIORS)
    assert drawn.names == (*VALUES, "*/host_s_per_layer")
    found = drawn.log_factors
    assert found.mean(0) == pytest.approx(np.zeros(4), abs=1e-12)
    expected = np.zeros((4, 4))
    expected[:3, :3], expected[3, 3] = FACTOR @ FACTOR.T, 1.0
    assert found.T @ found / DRAWS == pytest.approx(expected)


def test_draws_are_the_same_each_time():
    first, again = (seeded_draws(VALUES, FACTOR, PRIORS).log_factors for _ in range(2))
    assert np.array_equal(first, again)


def test_the_written_table_is_that_of_the_draws(tmp_path):
    drawn = seeded_draws(VALUES, FACTOR, PRIORS)
    write_draws(drawn, tmp_path / "draws.csv")
    names, *rows = csv.reader((tmp_path / "draws.csv").read_text(encoding="utf-8").splitlines())
    assert tuple(names) == drawn.names
    assert np.array(rows, dtype=np.float64) == pytest.approx(drawn.log_factors, abs=5e-5)


def test_the_tables_of_fits_give_back_what_was_written(tmp_path):
    tables = FitTables(tmp_path / "constants.csv", tmp_path / "factors.csv")
    fits = {
        "one": FittedConstants(VALUES, FACTOR),
        "other": FittedConstants({"hbm_efficiency": 0.5}, np.array([[0.3]])),
    }
    tables.write(fits)
    found = tables.read()
    assert list(found) == ["one", "other"]
    for name, fitted in fits.items():
        assert found[name].values == pytest.approx(fitted.values)
        assert found[name].factor == pytest.approx(fitted.factor, rel=5e-3)


def test_the_shipped_draws_are_of_known_constants_and_of_any_stack_and_family():
    shipped = constant_draws()
    assert shipped.log_factors.shape == (DRAWS, len(shipped.names))
    assert {name for name in priors() if name.startswith("*")} <= set(shipped.names)
    fitted = {name for name in shipped.names if "/" not in name}
    assert fitted <= set(priors())
    assert (shipped.log_factors.std(0) > 0).all()
