"""One run at a time writes into an output folder; a run that is gone is in nobody's way."""

import os
import signal
from multiprocessing import get_context

import pytest

pytest.importorskip("torch")

from torch.distributed import FileStore
from training_runs import small_run

from meshwright.errors import InputError
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.training import output_lock
from meshwright.runtime.training.output_lock import sole_writer, sole_writers


def holder(folder):
    """Another process that holds a folder until it is killed."""
    context = get_context("fork")
    here, there = context.Pipe()

    def hold():
        with sole_writer(folder):
            there.send("held")
            there.recv()

    process = context.Process(target=hold, daemon=True)
    process.start()
    assert here.recv() == "held"
    return process


def test_a_second_run_is_refused_with_the_process_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(output_lock, "PATIENCE_S", 0.0)
    run = small_run(tmp_path)
    first = holder(tmp_path / "run")
    with pytest.raises(InputError) as error:
        run.train("run", 1)
    (problem,) = error.value.problems
    assert problem.rule.startswith(f"another run writes here: process {first.pid} on ")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["lock"], "nothing was begun"
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    assert len(run.train("run", 1).outcome.losses) == 1
    assert len(run.train("run", 2).outcome.losses) == 1


def test_a_run_waits_a_moment_for_the_ranks_of_one_that_was_killed(tmp_path):
    first = holder(tmp_path)
    killer = get_context("fork").Process(target=lambda: os.kill(first.pid, signal.SIGKILL))
    killer.start()
    with sole_writer(tmp_path):
        killer.join()
    assert not first.is_alive()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"), sole_writer(tmp_path / "file"):
        pass


def test_launched_ranks_are_refused_together(tmp_path, monkeypatch):
    monkeypatch.setattr(output_lock, "PATIENCE_S", 0.0)
    first = holder(tmp_path)
    store = FileStore(str(tmp_path / "store"), 2)
    for rank in range(2):
        place = Place(rank, 2, rank, "torchrun")
        with pytest.raises(InputError, match=f"process {first.pid}"), sole_writers(place, store, tmp_path):
            pass
    first.kill()
    first.join()
    free = FileStore(str(tmp_path / "another"), 2)
    for rank in range(2):
        with sole_writers(Place(rank, 2, rank, "torchrun"), free, tmp_path):
            pass
