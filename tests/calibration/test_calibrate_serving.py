"""Levels learned from a table whose runs are a known factor slower than predicted."""

import json

import numpy as np
import pytest
from serving_runs import ERRORS, slow_table
from typer.testing import CliRunner

from meshwright.calibration.calibrate_serving import calibrate_serving
from meshwright.calibration.run_errors import RunErrors
from meshwright.calibration.serving_levels import learned_levels, left_out_levels
from meshwright.cli.main import app
from meshwright.cost.serving.level_calibration import read_levels
from meshwright.cost.serving.levels import METRICS, Group, level_of, shipped_spreads
from meshwright.errors import InputError

GROUP = Group("llama-3.2-3b", "h100-sxm-80gb", "vllm")


@pytest.fixture
def table(tmp_path):
    return slow_table(tmp_path / "runs.csv", factor=1.4)


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_the_factor_is_learned_and_left_out_runs_gain(table):
    found = calibrate_serving(table)
    effects = found.levels.groups[GROUP]
    assert effects["tpot"].log_factor == pytest.approx(np.log(1.4), abs=0.05)
    assert effects["ttft"].log_factor == pytest.approx(np.log(1.4), abs=0.1)
    assert found.helps
    assert (
        found.after.figures["tpot"]["median_ape"] < 0.05 < 0.25 < found.before.figures["tpot"]["median_ape"]
    )


def test_a_left_out_run_does_not_move_its_own_level():
    names = (GROUP,) * 6
    errors = np.random.default_rng(0).normal(0.3, 0.1, (6, 3))
    one = left_out_levels(RunErrors(names, np.zeros(6, dtype=bool), errors), shipped_spreads())
    errors[2] = 2.0
    two = left_out_levels(RunErrors(names, np.zeros(6, dtype=bool), errors), shipped_spreads())
    assert one[2] == two[2]
    assert one[1] != two[1]


def test_groups_learn_nothing_of_each_other():
    other = GROUP._replace(device="b200")
    errors = np.full((4, 3), 0.3)
    errors[2:] = -0.5
    both = RunErrors((GROUP, GROUP, other, other), np.zeros(4, dtype=bool), errors)
    assert (
        learned_levels(both, shipped_spreads())[GROUP]
        == learned_levels(both.take([0, 1]), shipped_spreads())[GROUP]
    )


def test_the_file_is_for_validate(table, tmp_path):
    out = tmp_path / "levels.yaml"
    shown = run("calibrate", table, "-o", out, "--json")
    assert shown.exit_code == 0
    answer = json.loads(shown.stdout)
    assert set(answer) == {"runs", "levels", "left_out", "helps", "skipped"}
    assert set(answer["left_out"]) == {*METRICS, "mean_log_error"}
    (level,) = answer["levels"]
    assert level["tpot"]["factor"] == pytest.approx(np.exp(level["tpot"]["log_factor"]))
    levels = read_levels(out)
    assert level_of(*GROUP, levels).rows == answer["runs"]
    before = json.loads(run("validate", table, "--json").stdout)["summary"]["all"]
    after = json.loads(run("validate", table, "--calibration", out, "--json").stdout)["summary"]["all"]
    assert after["tpot"]["median_ape"] < 0.05 < before["tpot"]["median_ape"]
    told = run("validate", table, "--calibration", out).stdout
    assert f"{GROUP}, from runs.csv: {answer['runs']} measured" in told


def test_a_calibration_that_does_not_help_is_not_written(tmp_path):
    table = slow_table(tmp_path / "runs.csv", factor=1.0, errors=ERRORS[:2])
    out = tmp_path / "levels.yaml"
    shown = run("calibrate", table, "-o", out)
    assert shown.exit_code == 1
    assert "does not help" in shown.stdout
    assert not out.exists()


def test_a_table_without_measured_values_is_refused(tmp_path):
    table = slow_table(tmp_path / "runs.csv", factor=None)
    with pytest.raises(InputError, match="has no run with a prediction and a measured"):
        calibrate_serving(table)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("calibrate", "TABLE", "--on", "h100-sxm-80gb x 8"), "on = "),
        (("validate", "TABLE", "--calibration", "TABLE"), "serving"),
        (("validate", "TABLE", "--calibration", "missing.yaml"), "calibration = "),
    ],
)
def test_wrong_files_exit_with_2(table, arguments, named):
    shown = run(*(table if word == "TABLE" else word for word in arguments))
    assert shown.exit_code == 2
    assert named in shown.stderr


def test_levels_are_refused_for_runs_that_train(tmp_path):
    table = tmp_path / "training.csv"
    table.write_text("run_id,model\nr,llama-3.1-8b\n", encoding="utf-8")
    shown = run("validate", table, "--calibration", "levels.yaml")
    assert shown.exit_code == 2
    assert "no columns isl and osl" in shown.stderr
