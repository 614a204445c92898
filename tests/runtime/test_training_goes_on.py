"""Runs that end and go on: by a checkpoint, by a signal; to the bit."""

import os
import signal
import time
from multiprocessing import active_children
from threading import Thread

import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.errors import InputError

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


def test_sigterm_ends_the_step_saves_and_the_same_command_goes_on(tmp_path):
    run = small_run(tmp_path, ranks=2, layout={"pp": 2})
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


def test_other_data_are_refused_by_name_and_other_options_are_told(tmp_path):
    run = small_run(tmp_path)
    run.train("run", 2)
    with pytest.raises(InputError) as error:
        run.train("run", 4, seed=1)
    assert [problem.field for problem in error.value.problems] == ["data.seed"]
    (told,) = run.train("run", 4, lr=1e-4).remarks
    assert "steps 4 in place of 2" in told
    assert "lr 0.0001 in place of 0.0003" in told


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
