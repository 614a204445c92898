import json
import os
import time
from multiprocessing import get_context

from meshwright.runtime.faults.fault_dump import DUMP_SIGNAL, dumps_on_signal, write_dump

PATIENCE_S = 30


def test_a_dump_is_a_whole_file_and_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    path = write_dump(tmp_path, 3, {"reason": "test"})
    assert path == tmp_path / "faults" / "rank-3.json"
    assert json.loads(path.read_text())["rank"] == 3
    (tmp_path / "file").write_text("")
    assert write_dump(tmp_path / "file", 3, {}) is None


def hangs(output):
    with dumps_on_signal(lambda: write_dump(output, 0, {"reason": "signal"})):
        write_dump(output, 1, {})
        time.sleep(10 * PATIENCE_S)


def test_a_rank_that_hangs_dumps_on_the_signal(tmp_path):
    process = get_context("fork").Process(target=hangs, args=(tmp_path,), daemon=True)
    process.start()
    try:
        await_file(tmp_path / "faults" / "rank-1.json")
        os.kill(process.pid, DUMP_SIGNAL)
        await_file(tmp_path / "faults" / "rank-0.json")
        assert process.is_alive()
    finally:
        process.kill()
        process.join()


def await_file(path):
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)
