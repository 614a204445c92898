"""One's own machine and model, by verbs alone: plan, probe, train, ingest, calibrate, plan again."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from local_cluster import CONFIG, ID, QUERY_NORMS, machine_and_model
from typer.testing import CliRunner

from meshwright import api
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cli.main import app
from meshwright.cluster.load import load_cluster
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import load_plan
from meshwright.plans.resolve import resolve
from meshwright.validation.model_to_columns import model_columns
from meshwright.validation.read_run_table import read_runs
from meshwright.verbs.predict.predict_plan import predicted

KEPT = ("--keep", "cp=1", "--keep", "recompute=none", "--keep", "offload=none")
QUESTION = ("--seq-len", "64", "--global-batch", "8", "--stack", "meshwright", *KEPT)
SLOWER = 1.6
"""How much longer steps take than predicted, where their times are made up."""


def verb(*words):
    """What a command says; it must go well."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(
    scope="module",
    params=[CONFIG, pytest.param(QUERY_NORMS, marks=pytest.mark.slow)],
    ids=["said by columns", "not said by columns"],
)
def machine(request, tmp_path_factory):
    """A folder with a machine, a model and three jobs, and a copy of it as it was made."""
    folder, copy = (tmp_path_factory.mktemp("loop") / name for name in ("machine", "copy"))
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        cluster, model = machine_and_model(folder, request.param)
        verb("plan", model, "--on", cluster, *QUESTION, "-o", "plan.yaml")
        verb("probe", "plan.yaml", "--top", "3", "-o", "jobs")
    (folder / "elsewhere").mkdir()
    shutil.copytree(folder, copy)
    return folder, copy


@pytest.fixture
def home(machine, monkeypatch):
    """The folder, as it was made, while one works in another."""
    folder, copy = machine
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    monkeypatch.chdir(folder / "elsewhere")
    return folder


@pytest.fixture
def jobs(home):
    """The jobs beside each other."""
    found = sorted(path.parent for path in (home / "jobs").glob("*/plan.yaml"))
    assert len(found) == 3
    return found


def ran(job, step_s):
    """What a run of the job would leave: its plan and the metrics of steps."""
    plan, out = load_plan(job / "plan.yaml"), job / "run"
    out.mkdir()
    shutil.copy(job / "plan.yaml", out)
    model = model_columns(load_model(plan.model).architecture)
    first = {"meshwright": "0.1.0", "plan": plan.to_data(), "model": model, "precision": "bf16"}
    steps = ({"step": step, "step_time_s": step_s} for step in range(20))
    text = "".join(json.dumps(line) + "\n" for line in (first, *steps))
    (out / "metrics.jsonl").write_text(text, encoding="utf-8")
    return out / "metrics.jsonl"


def priced(table, cluster):
    """Predicted seconds of the table's rows on a cluster, by the name of the run."""
    known = load_cluster(Path(cluster))
    usable = usable_runs(read_runs(table, [ID]), known)
    assert not usable.skipped
    rows = [run.run_id for run in read_runs(table, [ID])]
    seconds = [
        step_s for o in usable.observations for step_s in np.exp(o.log_errors({})) * np.array(o.measured_s)
    ]
    return dict(zip(rows, seconds, strict=True)), usable.remarks


@pytest.mark.slow
def test_the_loop_closes_with_made_up_times(jobs, home):
    expected = [predicted(resolve(load_plan(job / "plan.yaml"))).step_time_s for job in jobs]
    logs = [ran(job, SLOWER * step_s) for job, step_s in zip(jobs, expected, strict=True)]
    verb("ingest", *logs, "-o", "runs.csv")
    names = [f"{job.name}/run/metrics" for job in jobs]
    found, remarks = priced("runs.csv", home / "host.yaml")
    assert found == pytest.approx(dict(zip(names, expected, strict=True)), rel=1e-9)
    assert not remarks
    verb("calibrate", "runs.csv", "--on", home / "host.yaml", "-o", "better.yaml")
    again, _ = priced("runs.csv", "better.yaml")
    errors = [abs(again[name] / (SLOWER * before) - 1) for name, before in found.items()]
    assert sum(errors) / len(errors) < 1 - 1 / SLOWER
    assert load_cluster(Path("better.yaml")).devices == 2
    told = verb("plan", home / "ours", "--on", "better.yaml", *QUESTION, "--why", "-o", "again.yaml")
    assert "gemm_efficiency" in told
    assert "from the cluster's calibration" in told


def test_without_its_folder_a_model_is_what_its_columns_say_and_that_is_told(jobs, home):
    logs = [ran(job, 0.1) for job in jobs]
    said = verb("ingest", *logs, "-o", "runs.csv")
    here, _ = priced("runs.csv", home / "host.yaml")
    shutil.rmtree(home / "ours")
    gone, remarks = priced("runs.csv", home / "host.yaml")
    assert remarks == (f"{home / 'ours'} is not on this machine: its columns stand for it",)
    complete = gone == pytest.approx(here, rel=1e-12)
    assert complete == ("no column says" not in said)
    assert ("qk_norm" in said) == (not complete)
    done = CliRunner().invoke(app, ["calibrate", "runs.csv", "--on", str(home / "host.yaml")])
    assert "its columns stand for it" in " ".join(done.output.split())


def test_logs_are_read_where_the_model_is_gone_since_the_first_line_has_its_shape(jobs, home):
    logs = [ran(job, 0.1) for job in jobs]
    shutil.rmtree(home / "ours")
    verb("ingest", *logs, "-o", "runs.csv")
    with open("runs.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["layers"], row["device"]) for row in rows] == [("4", ID)] * 3


def test_such_a_device_needs_its_cluster_and_the_refusal_says_so(jobs):
    verb("ingest", *(ran(job, 0.1) for job in jobs), "-o", "runs.csv")
    done = CliRunner().invoke(app, ["calibrate", "runs.csv"])
    assert done.exit_code == 2
    assert f"device = '{ID}'" in done.output
    assert "calibrate --on" in done.output
    other = CliRunner().invoke(app, ["calibrate", "runs.csv", "--on", "h100-sxm-80gb x 8"])
    assert other.exit_code == 2
    assert f"device = '{ID}'" in other.output


def test_the_page_of_the_jobs_begins_with_the_measured_cluster(jobs, home):
    page = (home / "jobs" / "README.md").read_text(encoding="utf-8")
    assert f"calibrate runs.csv --on {home / 'host.yaml'} " in page


@pytest.mark.slow
@pytest.mark.parametrize("machine", [CONFIG], indirect=True, ids=["trained"])
def test_a_job_trains_wherever_it_is_started_and_its_log_is_priced_as_its_plan(jobs, home):
    pytest.importorskip("torch")
    command = home / "bin" / "meshwright"
    command.parent.mkdir()
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from meshwright.cli.main import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "TRAIN_STEPS": "6"}
    job = jobs[0]
    for _ in range(2):  # what the first start left is in the way of nothing
        subprocess.run(
            ["bash", job / "meshwright" / "launch.sh", "--cpu"],
            cwd=job,
            env=environment,
            check=True,
            capture_output=True,
        )
    first = json.loads((job / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["other_device"] is None
    verb("ingest", job / "run" / "metrics.jsonl", "-o", "runs.csv")
    found, _ = priced("runs.csv", home / "host.yaml")
    expected = api.predict(job / "plan.yaml").step_time_s
    assert found == {f"{job.name}/run/metrics": pytest.approx(expected, rel=1e-9)}
