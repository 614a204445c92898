"""Passes timed one by one, as targets of a fit."""

import csv

import numpy as np
import pytest
from pass_profiles import middle_passes, profiles_of, read_notes

from meshwright.calibration.fit import fit
from meshwright.calibration.fitted_parameters import Parameter, Prior
from meshwright.cost.constants import constants, kernels
from meshwright.validation.read_run_table import Run, read_runs

ROW = {
    "run_id": "a", "source": "authors", "model": "GPT", "layers": 32, "hidden": 2304,
    "ffn_hidden": 9216, "ffn": "gelu", "heads": 24, "vocab": 50304,
    "seq_len": 1024, "device": "A100-80GB", "devices": 8, "devices_per_node": 8, "global_batch": 144,
    "micro_batch": 6, "tp": 1, "pp": 8, "schedule": "zb-h1", "dp": 1, "stack": "megatron-zero-bubble",
    "outcome": "ok", "step_time_s": 1.2,
}  # fmt: skip
NOTES = "profiled TF/TB/TW/Tcomm ms 18.5/18.1/9.4/0.6; RoCE"


def table(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, [*ROW, "notes"])
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return str(path)


def profiles(path):
    runs = [run for run in read_runs(path) if isinstance(run, Run)]
    return profiles_of(runs, read_notes(path))


def test_the_notes_of_split_schedules_hold_profiles_once_each(tmp_path):
    other = NOTES.replace("18.5", "19.5")
    found = profiles(
        table(
            tmp_path,
            {"notes": NOTES},
            {"run_id": "b", "notes": NOTES},
            {"run_id": "c", "notes": other},
            {"run_id": "d", "notes": "nothing was timed"},
            {"run_id": "e", "notes": NOTES.replace("9.4", "9.5"), "schedule": "1f1b"},
        )
    )
    assert [profile.measured_s.tolist() for profile in found] == [
        [[0.0185, 0.0181, 0.0094]],
        [[0.0195, 0.0181, 0.0094]],
    ]
    assert found[0].sources == ("authors",) * 3


def test_passes_of_the_middle_make_up_the_step_of_a_long_pipeline(tmp_path):
    path = table(tmp_path, {"notes": NOTES})
    (profile,) = profiles(path)
    doubled = {"gemm_launch_s": 0.0, "a100:gemm_efficiency": kernels("a100-sxm-80gb").gemm_efficiency / 2}
    forward, into, weight = middle_passes(profile.plans, profile.setting)[0]
    assert forward < into + weight < 3 * forward
    slower = np.exp(profile.log_errors(doubled) - profile.log_errors({}))
    assert (slower > 1.3).all()
    assert (slower < 2.01).all()


def test_a_fit_follows_the_passes(tmp_path):
    (profile,) = profiles(table(tmp_path, {"notes": NOTES}))
    value = constants()["hbm_efficiency"]
    free = Parameter("hbm_efficiency", value, Prior(value, 3.0))
    found = fit([profile], [free])
    assert found.after < found.before
    assert found.values["hbm_efficiency"] != pytest.approx(value, rel=0.01)
