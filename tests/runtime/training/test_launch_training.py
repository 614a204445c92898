"""How a run begins: what is refused before anything starts, on which ranks, and what the command line prints."""

import json
import os
import socket
from multiprocessing import get_context

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.cli.main import app
from meshwright.errors import InputError


def refused(run, *arguments, **wishes):
    """What is said of a run that does not begin, by field."""
    with pytest.raises(InputError) as error:
        run.train("run", *arguments, **wishes)
    assert not (run.path.parent / "run").exists()
    assert all(problem.suggestion for problem in error.value.problems)
    return {problem.field: problem for problem in error.value.problems}


def test_everything_that_is_wrong_is_said_at_once(tmp_path):
    afterwards = {"schedule": {"name": "1f1b", "step_validation": "after"}}
    work = {"seq_len": 24, "global_batch": 8, "optimizer": "muon"}
    run = small_run(tmp_path, ranks=2, layout={"pp": 2}, pipeline=afterwards, workload=work)
    wrong = {"lr": -1.0, "schedule": "cosin", "nonsense": 1, "data": (str(tmp_path / "missing.txt"),)}
    folders = {"resume": str(tmp_path / "nowhere"), "initial": str(tmp_path / "nowhere")}
    found = refused(run, 0, "fp7", **wrong, **folders)
    named = {
        "steps",
        "lr",
        "schedule",
        "nonsense",
        "precision",
        "pipeline.schedule.step_validation",
        "weights",
    }
    assert named <= found.keys()
    found = refused(run, 1, "fp32", data=wrong["data"], **folders)
    assert {"data", "pipeline.schedule.step_validation", "weights"} <= found.keys()


def test_the_number_of_steps_must_be_said(tmp_path):
    from meshwright import api

    with pytest.raises(InputError, match=r"steps: .*--steps 100"):
        api.run(small_run(tmp_path).path, options={})


def test_more_ranks_than_a_host_runs_are_refused_with_the_line_to_use(tmp_path):
    run = small_run(
        tmp_path, ranks=32, layout={"dp_replicate": 32}, workload={"seq_len": 24, "global_batch": 32}
    )
    assert "torchrun --nnodes 4 --nproc-per-node 8" in refused(run)["ranks"].suggestion


def test_a_checkpoint_in_the_way_of_the_export_is_seen_before_training(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"")
    assert "already" in refused(small_run(tmp_path), export=str(tmp_path / "weights"))["export"].rule


def test_weights_of_another_shape_are_seen_before_training(tmp_path):
    small_run(tmp_path / "other", family="llama biases").train("run", 1, export=str(tmp_path / "weights"))
    found = refused(small_run(tmp_path), initial=str(tmp_path / "weights"))
    assert {"lm_head.weight", "model.layers.0.self_attn.q_proj.weight"} <= found.keys()


def test_a_plan_for_another_stack_runs_and_that_is_told(tmp_path):
    found = small_run(tmp_path, stack="megatron-core").train("run", 1)
    assert any("megatron-core" in remark for remark in found.remarks)
    assert json.dumps(found.to_json())


def test_launched_ranks_meet_and_rank_0_alone_answers(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = get_context("fork").SimpleQueue()

    def rank(number):
        place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": 2, "MASTER_PORT": port}
        os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
        found = run.train("run", 2)
        answers.put((number, found and found.outcome.losses))

    processes = [get_context("fork").Process(target=rank, args=(number,)) for number in range(2)]
    for process in processes:
        process.start()
    told = dict(answers.get() for _ in processes)
    for process in processes:
        process.join()
    assert told[0] == pytest.approx(small_run(tmp_path / "alone").train("run", 2).outcome.losses, rel=1e-12)
    assert told[1] is None


def test_a_launcher_that_started_another_number_of_ranks_is_told(tmp_path, monkeypatch):
    place = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 3, "MASTER_PORT": 1, "MASTER_ADDR": "127.0.0.1"}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    assert "torchrun started 3 processes, the plan has 2" in refused(run)["ranks"].rule


def test_the_command_line_prints_the_measured_step_and_why_nothing_was_predicted(tmp_path):
    run = small_run(tmp_path)
    command = [
        "run",
        str(run.path),
        "--steps",
        "5",
        "--out",
        str(tmp_path / "run"),
        "--precision",
        "fp32",
        "--json",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert (data["kind"], data["steps"], len(data["losses"])) == ("measured", 5, 5)
    assert data["step_time_s"] > 0
    assert data["predicted"] is None
    assert "this ran on cpu" in data["origin"]["predicted"]


def test_options_of_the_other_kind_of_run_are_refused(tmp_path):
    plan = str(small_run(tmp_path).path)
    for words in (["--steps", "3", "--trace", "t.json"], ["--emulate", "--lr", "1"]):
        done = CliRunner().invoke(app, ["run", plan, *words])
        assert done.exit_code == 2
        assert "--emulate" in done.output
