import urllib.request
from dataclasses import replace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import small_run

from meshwright.errors import InputError
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.progress import metrics_outputs
from meshwright.runtime.progress.metrics_outputs import open_outputs
from meshwright.runtime.progress.prometheus_metrics import prometheus_metrics
from meshwright.runtime.progress.step_metrics import StepMetrics
from meshwright.runtime.training.options import TrainingOptions

STEP = StepMetrics(
    step=3,
    loss=2.5,
    grad_norm=1.0,
    lr=0.1,
    tokens=40,
    tokens_per_s=20.0,
    mfu=None,
    step_time_s=0.5,
    memory_bytes=None,
    time_s=1e9,
    waited_s=0.125,
)
FAULT = Fault(kind="slow", rank=1, step=3, evidence="computes 9 times as long")


def written(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(of.step, of.value) for of in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_numbers_of_steps_and_evaluations_become_curves(tmp_path):
    board = tmp_path / "board"
    with open_outputs(tmp_path / "log", "1", {}, 0, board) as outputs:
        outputs.step(STEP)
        outputs.evaluation(3, 2.75, 100)
        outputs.fault(FAULT)
    found = written(board)
    assert found["loss"] == [(3, 2.5)]
    assert found["waited_s"] == [(3, 0.125)]
    assert found["held_out_loss"] == [(3, 2.75)]
    assert "mfu" not in found
    assert '"evidence": "computes 9 times as long"' in (tmp_path / "log").read_text()


def test_steps_that_are_taken_again_replace_those_before(tmp_path):
    for first, loss in ((0, 2.5), (3, 2.0)):
        with open_outputs(tmp_path / "log", "1", {}, first, tmp_path / "board") as outputs:
            for step in range(first, 5):
                outputs.step(replace(STEP, step=step, loss=loss))
    assert [loss for _, loss in written(tmp_path / "board")["loss"]] == [2.5] * 3 + [2.0] * 2


def test_the_last_step_and_faults_by_kind_are_served(tmp_path):
    with prometheus_metrics(Address("127.0.0.1", 0)) as metrics:
        metrics.step(STEP)
        metrics.evaluation(3, 2.75, 100)
        metrics.fault(FAULT)
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        with urllib.request.urlopen(url) as answer:
            lines = answer.read().decode().splitlines()
        with pytest.raises(InputError, match="cannot be listened at"):
            prometheus_metrics(Address("127.0.0.1", metrics.port)).__enter__()
    for line in ("meshwright_loss 2.5", "meshwright_held_out_loss 2.75", "meshwright_step 3.0"):
        assert line in lines
    assert 'meshwright_faults_total{kind="slow"} 1.0' in lines


def test_a_missing_package_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(metrics_outputs, "find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        TrainingOptions(steps=1, tensorboard=True, prometheus="127.0.0.1:0")
    assert [of.suggestion for of in caught.value.problems] == [
        "pip install 'meshwright[tensorboard]'",
        "pip install 'meshwright[prometheus]'",
    ]
    TrainingOptions(steps=1)


def test_a_run_writes_event_files_into_its_output(tmp_path):
    run = small_run(tmp_path)
    losses = run.train("run", 2, tensorboard=True, prometheus="127.0.0.1:0").outcome.losses
    assert [loss for _, loss in written(tmp_path / "run" / "tensorboard")["loss"]] == pytest.approx(losses)
