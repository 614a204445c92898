"""A checkpoint appears when all of it is on disk; whatever happens before leaves the former one."""

import os
import resource
import shutil
import sys

import pytest

pytest.importorskip("torch")

from checkpoint_runs import SMALLEST, held, on_ranks, saved
from local_plans import small

from meshwright.errors import InputError
from meshwright.runtime.checkpoint import (
    latest_checkpoint,
    prune_checkpoints,
    restore_checkpoint,
    save_checkpoint,
)

ONE, TWO = small(SMALLEST), small(SMALLEST, dp_shard=2, sharding="zero1")
MOST_OPERATIONS = 100


class Crash(BaseException):
    """The end of the process, as far as the code under test can tell."""


class Crashing:
    """Ends the process at the ``left``-th operation on files of a folder, by an audit hook."""

    def __init__(self, folder):
        self.folder, self.left = str(folder), 0
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        removing = event in ("os.rmdir", "os.remove")  # whose paths may be relative to a folder's handle
        changing = event in ("open", "os.rename", "os.mkdir") and str(arguments[0]).startswith(self.folder)
        if self.left and (removing or changing):
            self.left -= 1
            if not self.left:
                raise Crash

    def crashes(self, operation, act):
        """Whether ``act`` has so many operations that it was stopped before this one."""
        self.left = operation
        try:
            act()
        except Crash:
            return True
        finally:
            self.left = 0
        return False


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("again", [False, True], ids=["a new checkpoint", "one of a step that has one"])
def test_a_crash_at_any_operation_leaves_a_whole_checkpoint(again, tmp_path):
    def work(rank, steps):
        steps([1])
        save_checkpoint(tmp_path, rank, {})
        former = held(rank)
        if not again:
            steps([2])
        state, seen, crashing = held(rank), [], Crashing(tmp_path)
        for operation in range(1, MOST_OPERATIONS):
            restoring = save_checkpoint(tmp_path / "now", rank, {})
            crashed = crashing.crashes(operation, lambda: save_checkpoint(tmp_path, rank, {}))
            path = latest_checkpoint(tmp_path)
            restore_checkpoint(path, rank)
            assert held(rank) in (former, state)
            seen.append((held(rank) == state, path.name))
            if not crashed:
                return seen
            if path.name == "step-00000002":
                shutil.rmtree(path)
            restore_checkpoint(restoring, rank)
        raise AssertionError("saving never ends")

    (seen,) = on_ranks(ONE, work)
    assert len(seen) > 10
    whole = (True, f"step-0000000{1 if again else 2}")
    assert seen[-1] == whole
    assert len(set(seen)) > 1, "no crash was seen between two states"


def test_files_are_on_disk_before_the_name_and_the_name_before_saving_ends(tmp_path):
    def work(rank, steps):
        events, sync, replace = [], os.fsync, os.replace
        os.fsync = lambda handle: events.append(os.readlink(f"/proc/self/fd/{handle}")) or sync(handle)
        os.replace = lambda old, new: events.append((str(old), str(new))) or replace(old, new)
        return save_checkpoint(tmp_path, rank, {}), events

    ((path, events),) = on_ranks(ONE, work)
    unfinished = f"{path}.unfinished"
    named = events.index((unfinished, str(path)))
    assert {unfinished, *(f"{unfinished}/{file.name}" for file in path.iterdir())} <= set(events[:named])
    assert events[named + 1 :] == [str(tmp_path)]


def test_a_full_disk_is_told_to_all_ranks_and_the_run_goes_on(tmp_path):
    def work(rank, steps):
        first = save_checkpoint(tmp_path, rank, {})
        results = steps([1])
        if rank.place.rank == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        with pytest.raises(InputError) as error:
            save_checkpoint(tmp_path, rank, {})
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert latest_checkpoint(tmp_path) == first
        if rank.place.rank == 0:
            assert [path.name for path in tmp_path.iterdir()] == [first.name]
        second = save_checkpoint(tmp_path, rank, {})
        return results + steps([2]), str(error.value), second

    def undisturbed(rank, steps):
        return steps([1, 2])

    everyone = on_ranks(TWO, work)
    assert [results for results, *_ in everyone] == on_ranks(TWO, undisturbed)
    for _, said, second in everyone:
        assert "step-00000001.unfinished/rank-00001.safetensors': cannot be written: " in said
        assert second == tmp_path / "step-00000001"


def test_what_is_no_folder_is_told_to_all_ranks(tmp_path):
    (tmp_path / "file").touch()

    def work(rank, steps):
        with pytest.raises(InputError) as error:
            save_checkpoint(tmp_path / "file" / "run", rank, {})
        return str(error.value)

    assert all("cannot be written: Not a directory" in said for said in on_ranks(TWO, work))


def test_facts_that_are_no_json_are_the_callers_mistake_on_every_rank(tmp_path):
    def work(rank, steps):
        with pytest.raises(TypeError):
            save_checkpoint(tmp_path / "run", rank, {"what": object()})

    on_ranks(TWO, work)
    assert not (tmp_path / "run").exists()


def test_what_was_never_committed_does_not_count(tmp_path):
    path = saved(tmp_path)
    assert latest_checkpoint(tmp_path / "nothing") is None
    for name in ("step-00000009.unfinished", "step-9", "step-000000009", "other", "step-00000001.replaced"):
        shutil.copytree(path, tmp_path / name)
    (tmp_path / "step-00000008").touch()
    assert latest_checkpoint(tmp_path) == path
    path.rename(tmp_path / "gone")
    assert latest_checkpoint(tmp_path) == tmp_path / "step-00000001.replaced"


def test_a_committed_checkpoint_that_was_emptied_is_still_the_latest(tmp_path):
    (tmp_path / "step-00000007").mkdir(parents=True)
    saved(tmp_path)
    assert latest_checkpoint(tmp_path) == tmp_path / "step-00000007"


def test_pruning_keeps_the_last_ones_and_sweeps_leftovers(tmp_path):
    for step in (1, 2, 30, 100000000):
        (tmp_path / f"step-{step:08d}").mkdir()
    for left in ("step-00000050.unfinished", "step-00000030.replaced", "step-00000002.unfinished"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "rank-00000.safetensors").touch()
    (tmp_path / "metrics.jsonl").touch()
    prune_checkpoints(tmp_path, 2)
    assert sorted(os.listdir(tmp_path)) == ["metrics.jsonl", "step-00000030", "step-100000000"]
    prune_checkpoints(tmp_path, 2)
    prune_checkpoints(tmp_path / "nothing", 1)
    assert latest_checkpoint(tmp_path).name == "step-100000000"
