"""Logs to rows: with the plan beside them, with settings, all problems at once, and on to calibrate."""

import csv
import io
import shutil
import sys
from pathlib import Path

import pytest

from meshwright import api
from meshwright.errors import InputError
from meshwright.verbs.ingesting import ingest_logs

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "import_" / "logs" / "samples"
LOG = """  tensor_model_parallel_size ...................... 2
  micro_batch_size ................................ 1
""" + "".join(
    f" iteration {i:8}/      20 | consumed samples: {i * 64:12} | elapsed time per iteration (ms): {t} | "
    f"global batch size:    64 | lm loss: 1.1E+01 |\n"
    for i, t in enumerate((29000.0, 9600.0, 7000.0, 7010.0, 6990.0, 7000.0, 7000.0), 1)
)
PLAN = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 8
workload: {seq_len: 8192, global_batch: 64}
layout: {dp_shard: 4, tp: 2}
sharding: zero1
"""


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "01-tp2"
    folder.mkdir()
    (folder / "probe.log").write_text(LOG)
    (folder / "plan.yaml").write_text(PLAN)
    return folder


def test_the_plan_beside_a_log_fills_its_row(job):
    (row,) = ingest_logs([str(job / "probe.log")]).rows
    assert not row.problems
    assert (
        row.cells
        | {
            "run_id": "01-tp2/probe",
            "model": "llama-3.1-8b",
            "device": "h100-sxm-80gb",
            "devices": "8",
            "tp": "2",
            "dp": "4",
            "sharding": "zero1",
            "outcome": "ok",
        }
        == row.cells
    )
    assert float(row.cells["step_time_s"]) == pytest.approx(7.0, rel=0.01)


def test_a_named_plan_stands_for_all_logs_and_settings_above_it(job):
    shutil.move(job / "plan.yaml", job.parent / "other.yaml")
    found = ingest_logs([str(job / "probe.log")], str(job.parent / "other.yaml"), ["stack=torchtitan"])
    assert found.rows[0].cells["stack"] == "torchtitan"


def test_rows_are_predicted_and_a_run_is_replaced_not_repeated(job, tmp_path):
    found = ingest_logs([str(job / "probe.log")])
    table = found.table(found.table())
    assert len(list(csv.DictReader(io.StringIO(table)))) == 1
    (tmp_path / "runs.csv").write_text(table)
    (predicted,) = api.validate(tmp_path / "runs.csv").rows()
    assert 0.5 < predicted["predicted_step_time_s"] / 7.0 < 2.0


def test_the_problems_of_all_logs_come_at_once(tmp_path):
    (tmp_path / "empty.log").write_text("nothing here\n")
    with pytest.raises(InputError) as caught:
        ingest_logs([str(tmp_path / "empty.log"), str(tmp_path / "none.log")])
    assert {p.field.rpartition("/")[2].split(":")[0] for p in caught.value.problems} == {
        "empty.log",
        "none.log",
    }


@pytest.mark.parametrize("setting", ["device", "=3", "no_such_column=3"])
def test_wrong_settings_are_refused(job, setting):
    with pytest.raises(InputError):
        ingest_logs([str(job / "probe.log")], None, [setting])


def test_probe_log_ingest_and_calibrate_make_unseen_plans_better():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from three_probes import PLANS, machine
    finally:
        sys.path.pop(0)
    before, after, *_ = machine(PLANS[0], 3)
    assert after < 0.1
    assert after < before / 2
