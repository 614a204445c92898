import os
import subprocess
import sys

import pytest

from meshwright.errors import InputError
from meshwright.runtime.data.input_files import DataFile, find_files


def rules(error):
    return [(problem.value, problem.rule) for problem in error.value.problems]


def test_a_folder_stands_for_its_known_files_in_the_order_of_their_paths(tmp_path):
    for name in (
        "b.txt",
        "a/z.jsonl",
        "a/y.npy",
        "c.bin",
        "c.bin.json",
        "read.me",
        ".hidden.txt",
        ".git/x.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = find_files([tmp_path])
    names = [(file.path.relative_to(tmp_path).as_posix(), file.form) for file in found]
    assert names == [
        ("a/y.npy", "numpy"),
        ("a/z.jsonl", "json-lines"),
        ("b.txt", "text"),
        ("c.bin", "binary"),
    ]


def test_files_keep_the_order_of_the_command_line_and_other_ends_are_text(tmp_path):
    paths = [tmp_path / name for name in ("z.txt", "a.md", "plain")]
    for path in paths:
        path.write_text("x")
    assert find_files(paths) == tuple(DataFile(path, "text") for path in paths)


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    wrong = ["absent.txt", "empty", "loop", "pipe", "nul\0"]
    with pytest.raises(InputError) as caught:
        find_files([tmp_path / name for name in ("a.txt", "a.txt", *wrong)])
    said = dict(rules(caught))
    assert "is named 2 times" in said.pop(str(tmp_path / "a.txt"))
    assert set(said) == {str(tmp_path / name) for name in wrong}


def test_a_file_and_its_folder_are_the_same_file_twice(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match="named 2 times"):
        find_files([tmp_path, tmp_path / "a.txt"])


def test_a_folder_that_cannot_be_listed_is_no_empty_folder(tmp_path):
    """Run as another user, for root may list everything."""
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "a.txt").write_text("x")
    locked.chmod(0o000)
    tmp_path.chmod(0o755)
    code = (
        "import os, sys\n"
        "from meshwright.errors import InputError\n"
        "from meshwright.runtime.data.input_files import find_files\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: find_files(sys.argv[1:])\n"
        "except InputError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, "locked"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    locked.chmod(0o700)
    assert done.stdout.startswith("data = 'locked': cannot be read: Permission denied")
