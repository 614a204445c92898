"""The checkpoint that a recovery goes back to."""

import pytest

pytest.importorskip("torch")

from training_runs import small_run

from meshwright.runtime.recovery.checkpoint_choice import checkpoint_before


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choice")
    small_run(folder).train("run", 6, checkpoint_every=2, keep_last=5)
    return folder / "run" / "checkpoints"


def chosen(checkpoints, step, begin=None):
    found = checkpoint_before(checkpoints, step, begin)
    return found.step, found.remarks


def test_the_newest_one_that_the_fault_has_not_affected(checkpoints):
    assert chosen(checkpoints, 6) == (6, ())
    step, remarks = chosen(checkpoints, 5)
    assert step == 4
    assert "saved behind step 5" in remarks[0]
    assert chosen(checkpoints, 1)[0] == 0


def test_a_damaged_one_is_named_and_left_out(checkpoints, tmp_path):
    import shutil

    copy = tmp_path / "checkpoints"
    shutil.copytree(checkpoints, copy)
    file = next((copy / "step-00000006").glob("rank-*"))
    with open(file, "r+b") as bytes_of:
        bytes_of.seek(-9, 2)
        byte = bytes_of.read(1)
        bytes_of.seek(-9, 2)
        bytes_of.write(bytes([byte[0] ^ 4]))
    step, remarks = chosen(copy, 9)
    assert step == 4
    assert "step-00000006 is not used" in remarks[0]
    assert file.name in remarks[0]


def test_without_any_the_run_begins_where_it_began(tmp_path):
    begin = tmp_path / "step-00000007"
    found = checkpoint_before(tmp_path / "checkpoints", 9, begin)
    assert (found.path, found.step) == (begin, 7)
    assert checkpoint_before(tmp_path / "checkpoints", 9, None).step == 0
