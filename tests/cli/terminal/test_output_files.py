"""Files are written whole or not at all; what cannot be written is said before the work where possible."""

import os
import resource

import pytest
from command_runs import QUESTION, command, plan_text, refused, run, write

PLAN = ("plan", "llama-3.1-8b", *QUESTION, "--keep", "tp=2", "--keep", "cp=1", "--keep", "micro_batch=1")
TOO_SMALL_FOR_A_FILE = 600


@pytest.fixture
def plan_file(tmp_path):
    return write(tmp_path / "plan.yaml", plan_text())


NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Half a file of bytecode would break every later import."""


def small_disk():
    """Run in the child: no file may grow beyond a few hundred bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (TOO_SMALL_FOR_A_FILE, TOO_SMALL_FOR_A_FILE))


def listing(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_plan_writes_the_best_plan_and_replaces_an_older_file(tmp_path):
    file = write(tmp_path / "best.yaml", "something older")
    assert run(*PLAN, "-o", file).code == 0
    assert run("predict", file).code == 0
    assert listing(tmp_path) == ["best.yaml"]
    assert file.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_a_link_stays_a_link(tmp_path):
    target = write(tmp_path / "target.yaml", "older")
    link = tmp_path / "link.yaml"
    link.symlink_to(target)
    assert run(*PLAN, "-o", link).code == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("# written by meshwright\nplan: 1\n")


def test_a_pipe_is_written_into_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run(*PLAN, "-o", pipe).code == 0
    assert os.read(reader, 100).startswith(b"# written by meshwright\nplan: 1\n")
    os.close(reader)
    assert pipe.is_fifo()


def test_outputs_that_cannot_be_are_refused_before_the_search(tmp_path, plan_file):
    absent = tmp_path / "absent" / "plan.yaml"
    for output, words in ((absent, "no directory that can be written"), (tmp_path, "is a directory")):
        assert words in refused(*PLAN, "-o", output)
        assert words in refused("predict", plan_file, "--trace", output)
    assert listing(tmp_path) == ["plan.yaml"]


def test_export_makes_its_directory_and_lets_scripts_run(tmp_path, plan_file):
    folder = tmp_path / "new" / "folder"
    done = run("export", plan_file, "--to", "megatron", "-o", folder, "--json")
    assert done.code == 0
    assert listing(folder) == sorted(done.data["files"])
    for name, text in done.data["files"].items():
        assert (folder / name).read_text(encoding="utf-8") == text
        assert os.access(folder / name, os.X_OK) == text.startswith("#!")


def test_export_onto_a_file_is_refused(tmp_path, plan_file):
    assert "cannot be made" in refused("export", plan_file, "--to", "megatron", "-o", plan_file)
    assert plan_file.read_text(encoding="utf-8") == plan_text()


def test_export_where_one_file_cannot_be_replaced_writes_none(tmp_path, plan_file):
    names = run("export", plan_file, "--to", "megatron", "--json").data["files"]
    folder = tmp_path / "out"
    (folder / list(names)[-1]).mkdir(parents=True)
    assert "Is a directory" in refused("export", plan_file, "--to", "megatron", "-o", folder)
    assert listing(folder) == []


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("old", [None, "older"])
def test_a_full_disk_leaves_nothing_half(tmp_path, plan_file, old):
    file = tmp_path / "best.yaml"
    if old:
        write(file, old)
    done = command(*PLAN, "-o", file, preexec_fn=small_disk, env=NO_BYTECODE)
    assert done.returncode == 2
    assert b"cannot be written: File too large" in done.stderr
    assert b"Traceback" not in done.stderr
    assert listing(tmp_path) == (["best.yaml", "plan.yaml"] if old else ["plan.yaml"])
    assert not old or file.read_text(encoding="utf-8") == old


def test_a_full_disk_leaves_no_part_of_an_export(tmp_path, plan_file):
    folder = tmp_path / "out"
    done = command(
        "export", plan_file, "--to", "megatron", "-o", folder, preexec_fn=small_disk, env=NO_BYTECODE
    )
    assert done.returncode == 2
    assert b"cannot be written: File too large" in done.stderr
    assert listing(folder) == []


def test_a_directory_without_the_right_to_write_is_refused(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert "no directory that can be written" in refused(*PLAN, "-o", folder / "plan.yaml")


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a folder that takes no file, whoever asks")
def test_a_folder_that_takes_no_file_is_refused_before_a_step_is_emulated(plan_file):
    for verb in (("run", plan_file, "--emulate", "--trace"), ("measure", "-o"), (*PLAN, "-o")):
        message = refused(*verb, "/proc/out.yaml")
        assert "'/proc/out.yaml': /proc is no directory that can be written" in message
