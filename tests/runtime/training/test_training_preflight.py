"""A run that will not fit, or could not write what it is for, is refused before anything starts."""

import os

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from training_runs import small_run

from meshwright import api
from meshwright.cli.main import app
from meshwright.errors import InfeasibleError, InputError
from meshwright.runtime.launch import host_memory
from meshwright.verbs.run import memory_check
from meshwright.verbs.run.memory_check import held_bytes

FREE = 2**20
OWN_DEVICE = """name: tiny x 1
pools:
  - name: tiny
    count: 1
    device:
      id: tiny
      peak_tflops: {bf16: 0.5, fp32: 0.1}
      memory_gib: 0.25
      memory_gbyte_per_s: 24.0
      scaleup_gbyte_per_s_per_device: 2.7
      scaleup_link: gloo
      power_w: unknown
      source: an example
      confidence: guess
    node:
      name: one
      devices: 1
      nic_gbit_per_s_per_node: 0.1
    usd_per_device_hour: unknown
"""


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory_check, "free_host_bytes", lambda: FREE)


@pytest.mark.usefixtures("little_memory")
def test_ranks_that_hold_more_than_the_host_has_are_not_started(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_replicate": 2})
    with pytest.raises(InfeasibleError) as error:
        run.train("run", 1)
    assert error.value.exit_code == 1
    assert "2 ranks will hold" in str(error.value)
    assert "1.00 MiB are free" in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("little_memory")
def test_force_starts_it_all_the_same_and_tells(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_replicate": 2})
    done = api.run(run.path, options={"steps": 1, "output": tmp_path / "run"}, force=True)
    assert len(done.outcome.losses) == 1
    assert any("will hold" in remark for remark in done.remarks)


def test_a_plan_that_does_not_fit_the_device_of_its_own_is_refused_with_both_figures(tmp_path):
    (tmp_path / "host.yaml").write_text(OWN_DEVICE, encoding="utf-8")
    run = small_run(tmp_path, cluster="host.yaml")
    done = CliRunner().invoke(app, ["run", str(run.path), "--steps", "1", "--out", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert "predicted on the fullest device; tiny has 256.00 MiB" in done.output.replace("\n", " ")
    assert "--force" in done.output


def test_what_ranks_hold_is_counted_in_the_dtypes_of_the_run():
    parts = {"gradients": 400, "optimizer": 1200, "buffers": 0, "activations": 50, "working": 10}
    memory = {"stages": [{"parameters": 200, **parts}, {"parameters": 100, **dict.fromkeys(parts, 0)}]}
    assert held_bytes(memory, 4, "bf16", 4) == 2 * (200 + 1600 + 60) + 2 * 100
    assert held_bytes(memory, 4, "bf16", 1) == 1860
    assert held_bytes(memory, 2, "fp32", 2) == 1600 + 2 * 60, "no second copy of the parameters"
    assert held_bytes(memory, 2, "fp64", 2) == 2 * 1600 + 4 * 60


def test_the_memory_that_is_free_is_within_the_limit_of_the_control_group(tmp_path, monkeypatch):
    facts, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    facts.write_text("MemTotal:  9000 kB\nMemAvailable:    5000 kB\n", encoding="ascii")
    monkeypatch.setattr(host_memory, "FACTS", facts)
    monkeypatch.setattr(host_memory, "LIMITS", (limit, tmp_path / "nowhere"))
    for text, expected in (("max\n", 5000 * 1024), ("1048576\n", 2**20)):
        limit.write_text(text, encoding="ascii")
        assert host_memory.free_host_bytes() == expected
    facts.write_text("", encoding="ascii")
    limit.unlink()
    assert host_memory.free_host_bytes() is None


def refused(run, **wishes):
    """What is said of a run that does not begin, by field."""
    with pytest.raises(InputError) as error:
        run.train(wishes.pop("output", "run"), **wishes)
    return {problem.field: problem for problem in error.value.problems}


def test_folders_that_cannot_be_written_are_seen_before_training(tmp_path):
    (tmp_path / "README.md").write_text("no folder", encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("no folder", encoding="utf-8")
    run = small_run(tmp_path)
    for export in (tmp_path / "README.md", tmp_path / "README.md" / "below", "/proc/weights"):
        found = refused(run, export=str(export))
        assert {"export", "output"} <= found.keys()
        assert "cannot be written" in found["export"].rule
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "plan.yaml",
        "run",
    ]


def test_wrong_options_hide_neither_data_nor_checkpoints_nor_folders(tmp_path):
    found = refused(
        small_run(tmp_path), lr=-1.0, data=("nosuch",), resume="nosuch", export="/proc/x", initial="nosuch"
    )
    assert {"lr", "data", "resume", "export"} <= found.keys()


def test_problems_have_the_names_that_people_typed(tmp_path):
    wrong = ["--warmup", "9", "--keep", "0", "--clip", "-1", "--resume", "nosuch", "--export", "/proc/x"]
    done = CliRunner().invoke(app, ["run", str(small_run(tmp_path).path), "--steps", "3", *wrong])
    assert done.exit_code == 2
    for name in (
        "--warmup = 9",
        "--keep = 0",
        "--clip = -1.0",
        "--resume = 'nosuch'",
        "--export = '/proc/x'",
    ):
        assert name in done.output
    assert "from 0 to 3, the steps of the run" in done.output
    done = CliRunner().invoke(app, ["run", "plan.yaml", "--steps", "3", "--trace", "a.json"])
    assert "--trace = 'a.json'" in done.output


def test_files_have_the_rights_of_any_new_file(tmp_path):
    done = small_run(tmp_path).train("run", 1, export=str(tmp_path / "weights"))
    plain = (tmp_path / "run" / "metrics.jsonl").stat().st_mode
    for folder in (done.outcome.checkpoint, tmp_path / "weights"):
        assert {path.stat().st_mode for path in folder.iterdir()} == {plain}, os.listdir(folder)
