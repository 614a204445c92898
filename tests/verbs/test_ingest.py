"""Logs to rows: with the plan beside them, with settings, all problems at once, and on to calibrate."""

import csv
import io
import shutil
import sys
from pathlib import Path

import pytest

from meshwright import api
from meshwright.errors import InputError
from meshwright.ingestion.logs.run_table import append_rows
from meshwright.verbs.ingest import ingest_logs, run_names

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "ingestion" / "logs" / "samples"
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


@pytest.mark.slow
def test_measure_probe_ingest_and_calibrate_make_unseen_plans_better():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from three_probes import PLANS, machine
    finally:
        sys.path.pop(0)
    found = machine(PLANS[0], 3)
    probed, both, nothing = (
        found[name].error for name in ("three probes", "measured, and three probes", "nothing")
    )
    assert max(probed, both) < 0.1
    assert max(probed, both) < nothing / 2


UNEVEN = """plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
workload: {seq_len: 8192, global_batch: 64}
stack: megatron-core
layouts:
  main:
    grid: {dp_shard: 4, tp: 2}
    order: [tp, cp, pp, dp_shard, dp_replicate]
    sequence_parallel: true
states: {optimizer: [dp_shard, cp]}
layers: {embed: {layout: main}, 0..31: {layout: main}, head: {layout: main}}
pipeline:
  stages: [[embed, 0..18], [19..31, head]]
  placement: [0, 1]
  schedule: {name: 1f1b}
"""


def test_stages_and_order_of_a_plan_in_full_are_in_its_row_and_priced(job, tmp_path):
    (job / "plan.yaml").write_text(UNEVEN)
    (job / "probe.log").write_text("  sequence_parallel ............................... True\n" + LOG)
    found = ingest_logs([str(job / "probe.log")])
    cells = found.rows[0].cells
    assert not found.rows[0].problems
    assert cells["stage_layers"] == "19 13"
    assert cells["rank_order"] == "tp cp pp dp_shard dp_replicate"
    assert {"pp": "2", "dp": "4", "tp": "2", "schedule": "1f1b"}.items() <= cells.items()
    (tmp_path / "runs.csv").write_text(found.table())
    (row,) = api.validate(tmp_path / "runs.csv").rows()
    expected = api.predict(job / "plan.yaml")
    assert row["predicted_step_time_s"] == pytest.approx(expected.step_time_s, rel=1e-12)
    assert row["predicted_memory_gib"] == pytest.approx(expected.memory_bytes["total"] / 2**30, rel=1e-9)


def test_without_its_stages_the_same_run_would_be_predicted_otherwise(job, tmp_path):
    """So that dropping the column could not go unnoticed."""
    (job / "plan.yaml").write_text(UNEVEN)
    (job / "probe.log").write_text("  sequence_parallel ............................... True\n" + LOG)
    (cells,) = csv.DictReader(io.StringIO(ingest_logs([str(job / "probe.log")]).table()))
    (tmp_path / "runs.csv").write_text(append_rows("", [cells | {"stage_layers": ""}]))
    (row,) = api.validate(tmp_path / "runs.csv").rows()
    assert row["predicted_step_time_s"] < 0.97 * api.predict(job / "plan.yaml").step_time_s


def test_what_no_column_says_is_refused_by_name(job):
    zero3 = UNEVEN.replace(
        "optimizer: [dp_shard, cp]", "optimizer: [dp_shard], parameter: [dp_shard], gradient: [dp_shard]"
    )
    for text in (
        zero3.replace("states:", "gather: per-micro-batch\nstates:"),
        PLAN.replace("zero1", "zero3\ngather: per-step"),
    ):
        (job / "plan.yaml").write_text(text.replace("megatron-core", "torchtitan"))
        with pytest.raises(InputError) as caught:
            ingest_logs([str(job / "probe.log")])
        (problem,) = caught.value.problems
        assert problem.field.endswith("probe.log: gather")
        assert "no column" in problem.rule


def test_an_illegal_plan_in_full_beside_a_log_is_refused_with_its_problems(job):
    (job / "plan.yaml").write_text(UNEVEN.replace("[19..31, head]", "[20..31, head]"))
    with pytest.raises(InputError, match="19 comes next"):
        ingest_logs([str(job / "probe.log")])


def test_logs_of_one_name_are_runs_of_several(tmp_path):
    logs = [
        tmp_path / "a" / "x" / "probe.log",
        tmp_path / "b" / "x" / "probe.log",
        tmp_path / "b" / "probe.log",
    ]
    assert run_names([str(log) for log in logs]) == ["a/x/probe", "b/x/probe", "b/probe"]
    assert run_names([str(logs[0]), str(logs[0])]) == ["x/probe"] * 2
    assert run_names(["/probe.log", "/probe.txt"]) == ["probe", "probe"]


@pytest.mark.parametrize("name", ["", "/", ".", "a\0b", "x" * 5000])
def test_what_is_no_log_at_all_is_a_problem_of_that_log(name):
    with pytest.raises(InputError, match="log"):
        ingest_logs([name])


def test_metrics_of_our_own_runs_have_the_same_name_alone_and_together(tmp_path):
    logs = [str(tmp_path / job / "run" / "metrics.jsonl") for job in ("01-mb4", "02-tp2-mb8")]
    assert run_names(logs) == ["01-mb4/run/metrics", "02-tp2-mb8/run/metrics"]
    assert run_names(logs[:1]) == run_names(logs)[:1]


def test_a_plan_for_a_cluster_of_several_pools_is_no_plan_of_a_run(job):
    (job / "plan.yaml").write_text(PLAN.replace("h100-sxm-80gb x 8", str(job / "two.yaml")))
    pools = "".join(f"  - {{name: {n}, count: 8, device: {n}-sxm-80gb}}\n" for n in ("h100", "a100"))
    (job / "two.yaml").write_text("pools:\n" + pools)
    with pytest.raises(InputError, match="one kind of device"):
        ingest_logs([str(job / "probe.log")])
