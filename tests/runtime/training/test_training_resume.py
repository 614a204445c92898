"""Runs that end and go on: by a checkpoint, by a signal; to the bit."""

import os
import signal
import time
from multiprocessing import active_children
from threading import Thread

import numpy as np
import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.errors import InputError, Problem, RunError
from meshwright.runtime.training.train_rank import train

PATIENCE_S = 30.0


def test_a_run_that_goes_on_takes_the_same_steps_to_the_bit(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_shard": 2}, sharding="zero1")
    whole = run.train("whole", 6, "bf16", checkpoint_every=3)
    middle = tmp_path / "whole" / "checkpoints" / "step-00000003"
    rest = run.train("rest", 6, "bf16", resume=str(middle))
    assert rest.outcome.first_step == 3
    assert rest.outcome.losses == whole.outcome.losses[3:]
    assert rest.outcome.norms == whole.outcome.norms[3:]
    for part in sorted(path.name for path in whole.outcome.checkpoint.glob("rank-*")):
        assert (rest.outcome.checkpoint / part).read_bytes() == (whole.outcome.checkpoint / part).read_bytes()


def test_only_the_last_checkpoints_are_kept_and_a_run_that_is_done_stays_so(tmp_path):
    run = small_run(tmp_path)
    run.train("run", 4, checkpoint_every=1, keep_last=2)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-00000003", "step-00000004"]
    again = run.train("run", 4).to_json()
    assert (again["steps"], again["first_step"], again["step_time_s"]) == (0, 4, None)
    assert (again["fits"], again["step_time_low_s"]) == (None, None)
    assert again["origin"]["step_time_low_s"] == again["origin"]["fits"] == "null: no step was taken"
    assert len(run.metrics("run")) == 6, "four steps, and two starts"


def signals_after(run, output, step, count=1):
    """Send SIGTERM to this process once a step is in the log, ``count`` times."""

    def send():
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            log = run.path.parent / output / "metrics.jsonl"
            if log.exists() and len(log.read_bytes().splitlines()) > step + 1:
                break
            time.sleep(0.01)
        for _ in range(count):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)

    sender = Thread(target=send)
    sender.start()
    return sender


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("validation", ["before", "after"])
def test_sigterm_ends_the_step_saves_and_the_same_command_goes_on(validation, tmp_path):
    pipeline = {"schedule": {"name": "1f1b", "step_validation": validation}}
    run = small_run(tmp_path, ranks=2, layout={"pp": 2}, pipeline=pipeline)
    whole = run.train("whole", 30)
    sender = signals_after(run, "run", 2)
    stopped = run.train("run", 30)
    sender.join()
    done = len(stopped.outcome.losses)
    assert stopped.outcome.stopped
    assert 3 <= done < 30
    assert stopped.outcome.checkpoint.name == f"step-{done:08d}"
    rest = run.train("run", 30)
    assert stopped.outcome.losses + rest.outcome.losses == whole.outcome.losses
    assert [line["loss"] for line in run.metrics("run") if "step" in line] == list(whole.outcome.losses)


def test_a_signal_before_the_ranks_listen_is_not_forgotten(tmp_path, monkeypatch):
    def late(place, *arguments, **others):
        if place.rank == 1:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
        return train(place, *arguments, **others)

    monkeypatch.setattr("meshwright.runtime.training.launch_training.train", late)
    done = small_run(tmp_path, ranks=2, layout={"tp": 2}).train("run", 30)
    assert done.outcome.stopped
    assert len(done.outcome.losses) == 1


def test_a_second_signal_ends_all_ranks_at_once(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_replicate": 2})
    sender = signals_after(run, "run", 0, count=2)
    slow = {"checkpoint_every": 10**6, "evaluate_every": 0}
    before = signal.getsignal(signal.SIGTERM)
    try:
        stopped = run.train("run", 10**6, **slow)
        assert stopped.outcome.stopped, "the ranks were quicker than the second signal"
    except KeyboardInterrupt:
        pass
    sender.join()
    assert not active_children()
    assert signal.getsignal(signal.SIGTERM) is before


def told(run, *arguments, **wishes):
    """What is said of a run that does not begin."""
    with pytest.raises(InputError) as error:
        run.train(*arguments, **wishes)
    return error.value.problems


def test_other_data_are_refused_by_name_and_other_options_are_told(tmp_path):
    run = small_run(tmp_path)
    run.train("run", 2)
    (problem,) = told(run, "run", 4, seed=1)
    assert problem.field == "seed"
    assert "had 0" in problem.rule
    said = run.train("run", 4, lr=1e-4).remarks[-1]
    assert "steps 4 in place of 2" in said
    assert "lr 0.0001 in place of 0.0003" in said


def test_data_that_were_forgotten_are_one_problem_that_names_them(tmp_path):
    run, tokens = small_run(tmp_path), tmp_path / "tokens.npy"
    np.save(tokens, np.arange(1000, dtype=np.uint16) % 90)
    options = {"data": (str(tokens),)}
    run.train("run", 1, **options)
    (problem,) = told(run, "run", 2)
    assert f"was trained on {tokens}" in problem.rule
    assert f"--data {tokens}" in problem.suggestion
    assert "--resume" not in problem.suggestion
    np.save(tokens, np.arange(1000, dtype=np.uint16) % 80)
    (problem,) = told(run, "run", 2, **options)
    assert "changed since" in problem.rule


def test_another_precision_or_batch_is_refused_before_any_rank_starts(tmp_path, monkeypatch):
    run = small_run(tmp_path, ranks=2, layout={"tp": 2})
    run.train("run", 1)
    monkeypatch.setattr(
        "meshwright.runtime.recovery.supervise.started_ranks",
        lambda *of_ranks: pytest.fail("ranks started"),
    )
    (problem,) = told(run, "run", 2, "fp32")
    assert (problem.field, problem.suggestion) == ("run.precision", "--precision fp64")


def test_a_run_goes_on_under_another_plan_and_keeps_the_former_one(tmp_path):
    run, folder = small_run(tmp_path, ranks=2, layout={"tp": 2}), tmp_path / "run"
    run.train("run", 1)
    former = (folder / "plan.yaml").read_text(encoding="utf-8")
    other = small_run(tmp_path, ranks=2, layout={"pp": 2})
    said = other.train("run", 2).remarks[-1]
    assert "tp 1 in place of 2" in said
    assert "pp 2 in place of 1" in said
    assert (folder / "plan-1.yaml").read_text(encoding="utf-8") == former
    assert "pp: 2" in (folder / "plan.yaml").read_text(encoding="utf-8")
    other.train("run", 3)
    assert sorted(path.name for path in folder.glob("plan*")) == ["plan-1.yaml", "plan.yaml"]


def test_what_has_no_effect_on_a_run_that_goes_on_is_told(tmp_path):
    run = small_run(tmp_path)
    run.train("run", 3, checkpoint_every=1, keep_last=3)
    remarks = "\n".join(run.train("run", 2, keep_last=1, initial=str(tmp_path / "nosuch")).remarks)
    assert f"--init {tmp_path / 'nosuch'} are not used" in remarks
    assert "--keep 1: of the 3 checkpoints there" in remarks
    assert "has taken 3 steps already: with --steps 2, none is left" in remarks


def test_a_damaged_newest_checkpoint_has_two_ways_out_that_work(tmp_path):
    run, checkpoints = small_run(tmp_path), tmp_path / "run" / "checkpoints"
    run.train("run", 3, checkpoint_every=1)
    newest, before = checkpoints / "step-00000003", checkpoints / "step-00000002"
    (newest / "rank-00000.safetensors").write_bytes(b"short")
    (problem,) = told(run, "run", 4)
    assert f"moving {newest.name} away" in problem.suggestion
    assert f"--resume {before} with another --out" in problem.suggestion
    (problem,) = told(run, "run", 4, resume=str(before))
    assert f"move {newest.name} away" in problem.suggestion
    assert run.train("other", 4, resume=str(before)).outcome.first_step == 2
    newest.rename(tmp_path / "away")
    assert run.train("run", 4).outcome.first_step == 2


def test_a_disk_that_fills_up_ends_the_run_and_is_no_wrong_input(tmp_path, monkeypatch):
    def full(*of_rank):
        raise InputError(Problem("checkpoint", "step-00000001", "cannot be written: No space left on device"))

    monkeypatch.setattr("meshwright.runtime.training.save_checkpoint.save_checkpoint", full)
    with pytest.raises(RunError, match=r"no checkpoint was saved behind step 0: .*No space left"):
        small_run(tmp_path).train("run", 2, checkpoint_every=1)


def test_saving_in_the_background_changes_no_step_and_no_file(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"dp_shard": 2}, sharding="zero1")
    at_once = run.train("once", 4, checkpoint_every=1, keep_every=2, keep_last=1)
    options = {
        "checkpoint_async": True,
        "checkpoint_buffer_gib": 1e-6,
        "checkpoint_local": tmp_path / "local",
    }
    later = run.train("later", 4, checkpoint_every=1, keep_every=2, keep_last=1, **options)
    assert later.outcome.losses == at_once.outcome.losses
    for folder in ("once", "later"):
        checkpoints = sorted(path.name for path in (tmp_path / folder / "checkpoints").iterdir())
        assert checkpoints == ["step-00000002", "step-00000004"]
    for shard in at_once.outcome.checkpoint.glob("rank-*"):
        assert (later.outcome.checkpoint / shard.name).read_bytes() == shard.read_bytes()
    told = later.to_json()
    assert told["checkpoint_blocked_s"] > 0
    assert told["checkpoint_lasted_s"] > 0


def test_an_output_folder_is_no_checkpoint_and_the_newest_in_it_is_suggested(tmp_path):
    run = small_run(tmp_path)
    done = run.train("run", 1)
    (problem,) = told(run, "other", 2, resume=str(tmp_path / "run"))
    assert (problem.field, problem.rule) == ("resume", "is no checkpoint")
    assert problem.suggestion == f"--resume {done.outcome.checkpoint}"
    (problem,) = told(run, "other", 2, resume=str(tmp_path / "nosuch"))
    assert problem.value == str(tmp_path / "nosuch")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("resume", "rule"),
    [("never", "holds checkpoints"), ("step-00000001", "further on"), ("nowhere", "no such")],
)
def test_checkpoints_of_two_runs_never_share_a_folder(resume, rule, tmp_path):
    run = small_run(tmp_path)
    run.train("run", 2, checkpoint_every=1)
    chosen = str(tmp_path / "run" / "checkpoints" / resume) if resume != "never" else resume
    with pytest.raises(InputError, match=rule):
        run.train("run", 4, resume=chosen)
