import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.runtime.data.build_once import build_once

BUILDER = """
import os, sys, time
from pathlib import Path
from meshwright.runtime.data.build_once import build_once

def build(folder):
    Path(sys.argv[2], str(os.getpid())).touch()
    for i in range(20):
        (folder / f"{i}").write_text(str(os.getpid()))
        time.sleep(float(sys.argv[3]))

folder = build_once(Path(sys.argv[1]), build)
print(sorted({path.read_text() for path in folder.iterdir()}), len(list(folder.iterdir())))
"""


def start(folder, marks, pause_s):
    command = [sys.executable, "-c", BUILDER, str(folder), str(marks), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def marks(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path / "marks"


def test_of_several_processes_one_builds_and_all_see_a_whole_folder(tmp_path, marks):
    processes = [start(tmp_path / "cache" / "x", marks, 0.02) for _ in range(4)]
    outputs = {process.communicate()[0] for process in processes}
    (builder,) = names(marks)
    assert outputs == {f"['{builder}'] 20\n"}
    assert names(tmp_path / "cache") == ["x", "x.lock"]


def test_a_builder_that_is_killed_leaves_nothing_and_holds_up_nobody(tmp_path, marks):
    folder = tmp_path / "cache" / "x"
    with start(folder, marks, 0.5) as process:
        while not names(marks):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not folder.exists()
    assert len(names(folder.parent)) == 2  # the lock and what was begun
    build_once(folder, lambda place: (place / "whole").touch())
    assert names(folder) == ["whole"]
    assert names(folder.parent) == ["x", "x.lock"]


def test_a_builder_that_fails_leaves_nothing(tmp_path):
    def fails(place):
        (place / "half").touch()
        raise InputError([])

    with pytest.raises(InputError):
        build_once(tmp_path / "x", fails)
    assert names(tmp_path) == ["x.lock"]


def test_what_is_there_is_not_built_again(tmp_path):
    build_once(tmp_path / "x", lambda place: (place / "first").touch())
    build_once(tmp_path / "x", lambda place: (place / "second").touch())
    assert names(tmp_path / "x") == ["first"]


def test_where_no_lock_is_to_be_had_the_first_rename_counts(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError("no locks available")

    def slow(place):
        (place / "slow").touch()
        build_once(tmp_path / "x", lambda other: (other / "quick").touch())

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert build_once(tmp_path / "x", slow) == tmp_path / "x"
    assert names(tmp_path / "x") == ["quick"]
    assert names(tmp_path) == ["x", "x.lock"]


def test_a_place_that_cannot_be_written_is_wrong_input(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        build_once(tmp_path / "file" / "x", lambda place: None)


def test_others_may_read_what_is_built(tmp_path):
    folder = build_once(tmp_path / "x", lambda place: (place / "a").touch())
    assert os.stat(folder).st_mode & 0o055 == 0o055
    assert isinstance(folder, Path)
